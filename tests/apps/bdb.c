/* bdb: several processes with several threads each on one Berkeley DB environment.
 *
 *     bdb DIR THREADS SECONDS
 *
 * The environment's mutexes lie in files that every process maps: they are process-shared pthread mutexes and condition
 * variables at a different address in each process. Each round is one transaction that moves an amount between two
 * accounts (read for update, written back, so a lost update changes the total) and inserts one row. THREADS is the
 * number over all processes: two processes for up to three threads, else four. Prints one line of key=value numbers;
 * whether they agree is judged by the caller:
 *
 *     processes=P threads=T rounds=R rows=N sum=S expected_sum=E balance=B accounts=A deadlocks=D
 *
 * rows must equal rounds, sum must equal expected_sum, balance must equal 1000 * accounts.
 */
#define _GNU_SOURCE
#include <db.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* Every so many rounds the CPU is given away with the account's page locked, so that others have to wait for it. */
enum { ACCOUNTS = 16, OPENING = 1000, MAX_PROCESSES = 4, PAGE = 512, YIELD_EVERY = 16 };

static const char *home;
static double deadline;
static DB_ENV *environment;
static DB *accounts, *entries;

/* What the processes report to the first one, in memory that they share. */
static struct totals {
	uint64_t rounds, sum, deadlocks;
} *totals;

static void check(int code, const char *what)
{
	if (code) {
		fprintf(stderr, "bdb: %s: %s\n", what, db_strerror(code));
		exit(1);
	}
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static DBT dbt(void *data, u_int32_t size)
{
	DBT item;

	memset(&item, 0, sizeof item);
	item.data = data;
	item.size = item.ulen = size;
	item.flags = DB_DBT_USERMEM;
	return item;
}

static DB *open_table(const char *name)
{
	DB *db;

	check(db_create(&db, environment, 0), "db_create");
	check(db->set_pagesize(db, PAGE), "set_pagesize");
	check(db->open(db, NULL, name, NULL, DB_BTREE, DB_CREATE | DB_THREAD | DB_AUTO_COMMIT, 0600), name);
	return db;
}

static void open_environment(void)
{
	check(db_env_create(&environment, 0), "db_env_create");
	environment->set_errfile(environment, stderr);
	check(environment->set_lk_detect(environment, DB_LOCK_DEFAULT), "set_lk_detect");
	check(environment->set_cachesize(environment, 0, 16 << 20, 1), "set_cachesize");
	check(environment->set_flags(environment, DB_TXN_NOSYNC, 1), "set_flags");
	check(environment->set_lk_max_locks(environment, 20000), "set_lk_max_locks");
	check(environment->set_lk_max_objects(environment, 20000), "set_lk_max_objects");
	check(environment->set_lk_max_lockers(environment, 20000), "set_lk_max_lockers");
	check(environment->open(environment, home,
				DB_CREATE | DB_THREAD | DB_INIT_MPOOL | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_TXN,
				0600), "environment");
	accounts = open_table("accounts.db");
	entries = open_table("entries.db");
}

static void close_environment(void)
{
	check(accounts->close(accounts, 0), "close accounts");
	check(entries->close(entries, 0), "close entries");
	check(environment->close(environment, 0), "close environment");
}

/* Reads an account for update and writes it back changed. */
static int adjust(DB_TXN *txn, uint32_t account, int64_t amount)
{
	int64_t balance;
	DBT key = dbt(&account, sizeof account), data = dbt(&balance, sizeof balance);
	int code = accounts->get(accounts, txn, &key, &data, DB_RMW);

	if (code)
		return code;
	balance += amount;
	return accounts->put(accounts, txn, &key, &data, 0);
}

static int transaction(uint32_t worker, uint32_t round, uint64_t value)
{
	uint32_t from = (worker + round) % ACCOUNTS, to = (from + 1 + round % (ACCOUNTS - 1)) % ACCOUNTS;
	uint32_t id[2] = { worker, round };
	DBT key = dbt(id, sizeof id), data = dbt(&value, sizeof value);
	int64_t amount = 1 + round % 9;
	DB_TXN *txn;
	int code;

	check(environment->txn_begin(environment, NULL, &txn, 0), "txn_begin");
	code = adjust(txn, from, -amount);
	if (!code && round % YIELD_EVERY == 0)
		sched_yield();
	if (code || (code = adjust(txn, to, amount)) || (code = entries->put(entries, txn, &key, &data, DB_NOOVERWRITE))) {
		check(txn->abort(txn), "abort");
		return code;
	}
	check(txn->commit(txn, 0), "commit");
	return 0;
}

static void *work(void *argument)
{
	uint32_t worker = (uintptr_t)argument, round = 0;
	uint64_t sum = 0, deadlocks = 0;

	do {
		uint64_t value = worker * UINT64_C(1000003) + round * 7;
		int code;
		while ((code = transaction(worker, round, value)) == DB_LOCK_DEADLOCK)
			deadlocks++;
		check(code, "transaction");
		sum += value;
		round++;
	} while (now() < deadline);
	__atomic_fetch_add(&totals->rounds, round, __ATOMIC_RELAXED);
	__atomic_fetch_add(&totals->sum, sum, __ATOMIC_RELAXED);
	__atomic_fetch_add(&totals->deadlocks, deadlocks, __ATOMIC_RELAXED);
	return NULL;
}

/* One process: threads with the numbers first, first + step, … */
static void process(int first, int step, int threads)
{
	pthread_t started[threads];
	int count = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_environment();
	for (int worker = first; worker < threads; worker += step)
		check(pthread_create(&started[count++], NULL, work, (void *)(uintptr_t)worker), "pthread_create");
	for (int i = 0; i < count; i++)
		pthread_join(started[i], NULL);
	close_environment();
	exit(0);
}

static void fill_accounts(void)
{
	for (uint32_t account = 0; account < ACCOUNTS; account++) {
		int64_t balance = OPENING;
		DBT key = dbt(&account, sizeof account), data = dbt(&balance, sizeof balance);
		check(accounts->put(accounts, NULL, &key, &data, 0), "fill");
	}
}

/* Walks a table and adds up its values. */
static uint64_t add_up(DB *db, int64_t *sum)
{
	uint32_t id[2];
	int64_t value;
	DBT key = dbt(id, sizeof id), data = dbt(&value, sizeof value);
	DBC *cursor;
	uint64_t rows = 0;
	int code;

	*sum = 0;
	check(db->cursor(db, NULL, &cursor, 0), "cursor");
	while ((code = cursor->get(cursor, &key, &data, DB_NEXT)) == 0) {
		rows++;
		*sum += value;
	}
	if (code != DB_NOTFOUND)
		check(code, "walk");
	check(cursor->close(cursor), "close cursor");
	return rows;
}

int main(int count, char **arguments)
{
	int threads = count == 4 ? atoi(arguments[2]) : 0, processes = threads < 4 ? 2 : MAX_PROCESSES, failed = 0;

	if (threads < 1) {
		fprintf(stderr, "usage: bdb DIR THREADS SECONDS\n");
		return 2;
	}
	home = arguments[1];
	deadline = now() + atof(arguments[3]);
	totals = mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (totals == MAP_FAILED) {
		perror("bdb: mmap");
		return 1;
	}
	open_environment();
	fill_accounts();
	close_environment();
	for (int i = 0; i < processes; i++) {
		pid_t child = fork();
		if (child < 0) {
			perror("bdb: fork");
			return 1;
		}
		if (child == 0)
			process(i, processes, threads);
	}
	for (int i = 0, status; i < processes; i++)
		failed |= wait(&status) < 0 || status != 0;
	if (failed) {
		fprintf(stderr, "bdb: a process failed\n");
		return 1;
	}

	int64_t sum, balance;
	open_environment();
	uint64_t rows = add_up(entries, &sum), holders = add_up(accounts, &balance);
	printf("processes=%d threads=%d rounds=%" PRIu64 " rows=%" PRIu64 " sum=%" PRId64 " expected_sum=%" PRIu64
	       " balance=%" PRId64 " accounts=%" PRIu64 " deadlocks=%" PRIu64 "\n",
	       processes, threads, totals->rounds, rows, sum, totals->sum, balance, holders, totals->deadlocks);
	close_environment();
	return 0;
}
