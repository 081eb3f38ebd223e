/* kyoto: threads that do random operations on one in-memory database behind one mutex, for a fixed time.
 *
 *     kyoto [--mix wicked|get] [--keys N] [--threads T] [--seconds S] [--seed N]
 *
 * The `wicked` test of Kyoto Cabinet's kccachetest, as CNA's authors (EuroSys'19, section 7.1.3) and Dice (Malthusian
 * locks, EuroSys'17, section 6.6) changed it: a pthread mutex, a fixed time, and keys from a range that does not depend
 * on the number of threads, 10,000,000 unless told otherwise. The database, a CacheDB, is empty at first.
 *
 * What differs from theirs: the mutex stands in front of the library, because the library is the distribution's: its
 * own locks (a readers-writer lock, and a mutex for each of 16 slots) are taken inside, and nobody ever waits for them.
 * And as one mutex cannot be held across a transaction, there are no transactions.
 *
 *     wicked   of nine operations, two are get and one each set, add, append, increment, cas, remove, and a cursor's
 *              (visit and change or remove the record, step on; one of ten jumps). A value is the key, or, one time in
 *              ten, up to 1,023 bytes. One time in a hundred up to nine keys follow in one bulk operation
 *     get      only get, of an empty database: the shortest section
 *
 * Prints one line:
 *
 *     mix=M keys=N threads=T seconds=S operations=O operations_per_second=P least=L most=M inside=I met=E
 *         records=R visited=V wrong=W
 *
 * least and most: operations of the slowest and of the fastest thread. inside, a plain number that every section adds
 * one to, must be O; met, how often somebody was inside already, must be 0; visited, the records that a walk over the
 * database finds, must be R, what it says itself; wrong, those of them that cannot be, must be 0. Exit status: 0 if so,
 * 1 if not or on any error.
 */
#include <kccachedb.h>
#include <pthread.h>

#include "timed.h"

namespace kc = kyotocabinet;

static const char USAGE[] = "usage: kyoto [--mix wicked|get] [--keys N] [--threads T] [--seconds S] [--seed N]";
static const size_t LONG_BYTES = 1024;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static kc::CacheDB db;
static uint64_t inside, met;
/* Whether somebody is inside; volatile, because nobody else seems to read it. */
static volatile bool is_busy;

/* Only some answers are to be expected where an operation says that it failed. */
static void expect(bool succeeded, kc::BasicDB::Error::Code otherwise, const char *what)
{
	if (!succeeded && db.error() != otherwise)
		die(std::string("kyoto: ") + what + ": " + db.error().name() + ": " + db.error().message());
}

/* One thread's hands. */
class Hands : kc::DB::Visitor {
	Random random;
	uint64_t keys;
	kc::DB::Cursor *cursor;
	char filler[LONG_BYTES];

	std::string key() { return std::to_string(random.below(keys) + 1); }
	size_t length() { return random.below(LONG_BYTES) / (random.below(5) + 1); }

	/* What the cursor does to the record that it stands on. */
	const char *visit_full(const char *, size_t, const char *, size_t, size_t *size) override
	{
		switch (random.below(3)) {
		case 0:
			*size = length();
			return filler;
		case 1:
			return REMOVE;
		default:
			return NOP;
		}
	}

	void move_cursor(const std::string &key)
	{
		if (random.below(10) == 0) {
			expect(cursor->jump(key.data(), key.size()), kc::BasicDB::Error::NOREC, "jump");
			return;
		}
		expect(cursor->accept(this, true, random.below(2) == 0), kc::BasicDB::Error::NOREC, "visit");
		if (random.below(5) > 0)
			expect(cursor->step(), kc::BasicDB::Error::NOREC, "step");
	}

	void get(const std::string &key)
	{
		std::string value;
		expect(db.get(key, &value), kc::BasicDB::Error::NOREC, "get");
	}

public:
	Hands(uint64_t seed, uint64_t keys) : random(seed), keys(keys), cursor(db.cursor())
	{
		std::memset(filler, '*', sizeof filler);
	}
	~Hands() override { delete cursor; }

	/* One operation, to be called with the mutex held. */
	void wicked()
	{
		std::string key = this->key(), value = key;

		if (random.below(10) == 0)
			value.assign(filler, length());
		switch (random.below(9)) {
		case 0:
			return expect(db.set(key, value), kc::BasicDB::Error::SUCCESS, "set");
		case 1:
			return expect(db.add(key, value), kc::BasicDB::Error::DUPREC, "add");
		case 2:
			return expect(db.append(key, value), kc::BasicDB::Error::SUCCESS, "append");
		case 3:
			return expect(db.increment(key, random.below(1000)) != kc::INT64MIN, kc::BasicDB::Error::LOGIC, "increment");
		case 4:
			return expect(db.cas(key, key, value), kc::BasicDB::Error::LOGIC, "cas");
		case 5:
			return expect(db.remove(key), kc::BasicDB::Error::NOREC, "remove");
		case 6:
			return move_cursor(key);
		default:
			return get(key);
		}
	}

	void get() { get(key()); }

	/* Several keys at once. */
	void bulk()
	{
		std::vector<std::string> some;
		std::map<std::string, std::string> records;

		for (uint64_t i = random.below(10); i > 0; i--)
			some.push_back(key());
		switch (random.below(4)) {
		case 0:
			for (const std::string &key : some)
				records[key] = key;
			return expect(db.set_bulk(records) == (int64_t)records.size(), kc::BasicDB::Error::SUCCESS, "set_bulk");
		case 1:
			return expect(db.remove_bulk(some) >= 0, kc::BasicDB::Error::SUCCESS, "remove_bulk");
		default:
			return expect(db.get_bulk(some, &records) >= 0, kc::BasicDB::Error::SUCCESS, "get_bulk");
		}
	}

	bool bulk_follows() { return random.below(100) == 0; }
};

template <class Section> static void locked(Section section)
{
	pthread_mutex_lock(&mutex);
	met += is_busy;
	is_busy = true;
	section();
	inside++;
	is_busy = false;
	pthread_mutex_unlock(&mutex);
}

/* Counts the records, and those that nobody can have made. */
class Census : public kc::DB::Visitor {
	uint64_t keys;

	const char *visit_full(const char *key, size_t key_size, const char *, size_t, size_t *) override
	{
		std::string text(key, key_size);
		char *end;
		uint64_t number = std::strtoull(text.c_str(), &end, 10);
		visited++;
		wrong += *end || number < 1 || number > keys || std::to_string(number) != text;
		wrong += !seen.insert(number).second;
		return NOP;
	}
	std::set<uint64_t> seen;

public:
	uint64_t visited = 0, wrong = 0;
	explicit Census(uint64_t keys) : keys(keys) {}
};

int main(int count, char **words)
{
	Options options(count, words, USAGE);
	std::string mix = options.text("mix", "wicked");
	uint64_t keys = options.number("keys", "10000000", 1, 1e9);
	unsigned threads = options.number("threads", "2", 1, 10000);
	double seconds = options.number("seconds", "1", 0.01, 86400);
	uint64_t seed = options.number("seed", "1", 0, 1e15);
	options.finish();
	if (mix != "wicked" && mix != "get")
		die(USAGE);
	expect(db.open("*", kc::CacheDB::OWRITER | kc::CacheDB::OCREATE), kc::BasicDB::Error::SUCCESS, "open");

	Done done = run_for(seconds, threads, [&](unsigned number) {
		pthread_mutex_lock(&mutex);
		Hands *hands = new Hands(seed * 1000003 + number, keys);
		pthread_mutex_unlock(&mutex);
		uint64_t operations = 0;
		do {
			if (mix == "get") {
				locked([&] { hands->get(); });
			} else {
				locked([&] { hands->wicked(); });
				if (hands->bulk_follows()) {
					locked([&] { hands->bulk(); });
					operations++;
				}
			}
			operations++;
		} while (!time_is_up.load(std::memory_order_relaxed));
		pthread_mutex_lock(&mutex);
		delete hands;
		pthread_mutex_unlock(&mutex);
		return operations;
	});

	Census census(keys);
	expect(db.iterate(&census, false), kc::BasicDB::Error::SUCCESS, "iterate");
	int64_t records = db.count();
	std::printf("mix=%s keys=%llu ", mix.c_str(), (unsigned long long)keys);
	done.print();
	std::printf(" inside=%llu met=%llu records=%lld visited=%llu wrong=%llu\n", (unsigned long long)inside,
		    (unsigned long long)met, (long long)records, (unsigned long long)census.visited,
		    (unsigned long long)census.wrong);
	db.close();
	return met || inside != done.sum() || records != (int64_t)census.visited || census.wrong;
}
