/* sqlite: threads sharing one connection in serialized mode, half of them reading through a connection of their own.
 *
 *     sqlite DIR THREADS SECONDS
 *
 * Each round inserts one row and moves an amount between two accounts in one statement, both through the shared
 * connection, then reads back. (Only one connection writes: a connection whose threads keep a read transaction open
 * cannot follow another writer, and SQLite would answer SQLITE_BUSY.) Prints one line of key=value numbers; whether
 * they agree is judged by the caller:
 *
 *     threads=T rounds=R rows=N sum=S expected_sum=E balance=B accounts=A wrong_reads=W integrity=ok
 *
 * rows must equal rounds, sum must equal expected_sum, balance must equal 1000 * accounts, wrong_reads must be 0.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ACCOUNTS = 16, OPENING = 1000, BUSY_MS = 20000 };

static sqlite3 *shared;
static char path[4096];
static double deadline;

struct worker {
	pthread_t thread;
	int number;
	int64_t rounds, sum, wrong_reads;
};

static void fail(sqlite3 *db, const char *what)
{
	fprintf(stderr, "sqlite: %s: %s\n", what, db ? sqlite3_errmsg(db) : "out of memory");
	exit(1);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void run(sqlite3 *db, const char *sql)
{
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail(db, sql);
}

static sqlite3 *open_database(void)
{
	sqlite3 *db;

	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, NULL) != SQLITE_OK)
		fail(db, "open");
	sqlite3_busy_timeout(db, BUSY_MS);
	run(db, "PRAGMA journal_mode = WAL");
	run(db, "PRAGMA synchronous = OFF");
	return db;
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *statement;

	if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK)
		fail(db, sql);
	return statement;
}

/* Runs a statement that may answer one row; returns its first column, 0 when there is none.
 *
 * A reader that meets a half-written header of the log takes the write lock for a moment, and SQLite does not wait for
 * it on a connection that another thread is reading through: it answers SQLITE_BUSY at once. The statement has then
 * done nothing. */
static int64_t step(sqlite3 *db, sqlite3_stmt *statement)
{
	double patience = now() + BUSY_MS / 1e3;
	int64_t value = 0;
	int code;

	while ((code = sqlite3_step(statement)) == SQLITE_BUSY && now() < patience) {
		sqlite3_reset(statement);
		sched_yield();
	}

	if (code == SQLITE_ROW) {
		value = sqlite3_column_int64(statement, 0);
		code = sqlite3_step(statement);
	}
	if (code != SQLITE_DONE)
		fail(db, sqlite3_sql(statement));
	sqlite3_reset(statement);
	return value;
}

static int64_t ask(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *statement = prepare(db, sql);
	int64_t value = step(db, statement);

	sqlite3_finalize(statement);
	return value;
}

static void *work(void *argument)
{
	struct worker *me = argument;
	sqlite3 *db = me->number % 2 ? open_database() : shared;
	sqlite3_stmt *insert = prepare(shared, "INSERT INTO entries(worker, round, value) VALUES (?1, ?2, ?3)");
	sqlite3_stmt *move = prepare(shared, "UPDATE accounts SET balance = balance + CASE id WHEN ?1 THEN -?3 ELSE ?3 END "
					     "WHERE id IN (?1, ?2)");
	sqlite3_stmt *total = prepare(db, "SELECT sum(balance) FROM accounts");
	sqlite3_stmt *own = prepare(db, "SELECT value FROM entries WHERE worker = ?1 AND round = ?2");

	do {
		int64_t round = me->rounds++, value = me->number * 1000003 + round * 7;
		int from = (me->number + round) % ACCOUNTS, to = (from + 1 + round % (ACCOUNTS - 1)) % ACCOUNTS;

		sqlite3_bind_int(insert, 1, me->number);
		sqlite3_bind_int64(insert, 2, round);
		sqlite3_bind_int64(insert, 3, value);
		step(shared, insert);
		me->sum += value;
		sqlite3_bind_int(move, 1, from);
		sqlite3_bind_int(move, 2, to);
		sqlite3_bind_int64(move, 3, 1 + round % 9);
		step(shared, move);
		sqlite3_bind_int(own, 1, me->number);
		sqlite3_bind_int64(own, 2, round);
		me->wrong_reads += step(db, own) != value;
		me->wrong_reads += step(db, total) != ACCOUNTS * OPENING;
	} while (now() < deadline);

	sqlite3_finalize(insert);
	sqlite3_finalize(move);
	sqlite3_finalize(total);
	sqlite3_finalize(own);
	if (db != shared && sqlite3_close(db) != SQLITE_OK)
		fail(db, "close");
	return NULL;
}

static const char *integrity(void)
{
	static char answer[256];
	sqlite3_stmt *check = prepare(shared, "PRAGMA integrity_check");

	if (sqlite3_step(check) != SQLITE_ROW)
		fail(shared, "integrity_check");
	snprintf(answer, sizeof answer, "%s", (const char *)sqlite3_column_text(check, 0));
	sqlite3_finalize(check);
	return answer;
}

int main(int count, char **arguments)
{
	int threads = count == 4 ? atoi(arguments[2]) : 0;

	if (threads < 1) {
		fprintf(stderr, "usage: sqlite DIR THREADS SECONDS\n");
		return 2;
	}
	if (sqlite3_threadsafe() != 1) {
		fprintf(stderr, "sqlite: this library is not built for serialized threading\n");
		return 2;
	}
	snprintf(path, sizeof path, "%s/sqlite.db", arguments[1]);
	deadline = now() + atof(arguments[3]);
	shared = open_database();
	run(shared, "CREATE TABLE entries(worker, round, value, PRIMARY KEY(worker, round)) WITHOUT ROWID");
	run(shared, "CREATE TABLE accounts(id INTEGER PRIMARY KEY, balance)");
	for (int id = 0; id < ACCOUNTS; id++) {
		char sql[80];
		snprintf(sql, sizeof sql, "INSERT INTO accounts VALUES (%d, %d)", id, OPENING);
		run(shared, sql);
	}

	struct worker *workers = calloc(threads, sizeof *workers);
	int64_t rounds = 0, expected = 0, wrong = 0;

	for (int i = 0; i < threads; i++) {
		workers[i].number = i;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			fail(NULL, "pthread_create");
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		rounds += workers[i].rounds;
		expected += workers[i].sum;
		wrong += workers[i].wrong_reads;
	}
	printf("threads=%d rounds=%" PRId64 " rows=%" PRId64 " sum=%" PRId64 " expected_sum=%" PRId64
	       " balance=%" PRId64 " accounts=%d wrong_reads=%" PRId64 " integrity=%s\n",
	       threads, rounds, ask(shared, "SELECT count(*) FROM entries"), ask(shared, "SELECT sum(value) FROM entries"),
	       expected, ask(shared, "SELECT sum(balance) FROM accounts"), ACCOUNTS, wrong, integrity());
	free(workers);
	if (sqlite3_close(shared) != SQLITE_OK)
		fail(shared, "close");
	return 0;
}
