/* leveldb: threads that read random keys of one database for a fixed time, and check what they read.
 *
 *     leveldb --db DIR --mix fill|readrandom|readwhilewriting [--keys N] [--threads T] [--seconds S] [--seed N]
 *
 * As LevelDB's own db_bench does, with the changes of CNA's authors (EuroSys'19, section 7.1.2) and of Dice (Malthusian
 * locks, EuroSys'17, section 6.5): a fixed time instead of a fixed number of operations, and the throughput of all
 * threads together.
 *
 *     fill               makes the database in DIR: keys 0 to N-1 (1,000,000 unless told otherwise; 0: an empty
 *                        database), with values of 100 bytes, in order
 *     readrandom         T threads read random keys
 *     readwhilewriting   the same, while one more thread overwrites random keys; its writes are not counted as
 *                        operations
 *
 * Each read takes the database's one mutex twice, for short, and that of a shard of the block cache for each block.
 * With an empty database only the first is left. (The lock of the papers' LevelDB versions 1.18 and 1.20 is the same.)
 *
 * A value holds its key, the number of the write that made it, and a checksum of both in all its bytes. A read is wrong
 * if it finds something else, or an older value than one whose write had ended before the read began. Prints one line:
 *
 *     mix=M keys=N threads=T seconds=S operations=O operations_per_second=P least=L most=M found=F wrong=W writes=X
 *
 * least and most: operations of the slowest and of the fastest thread. found must be O, or 0 in an empty database;
 * wrong must be 0. Exit status: 0 if so, 1 if not or on any error.
 */
#include <leveldb/db.h>
#include <leveldb/write_batch.h>

#include <memory>

#include "timed.h"

static const char USAGE[] = "usage: leveldb --db DIR --mix fill|readrandom|readwhilewriting"
			    " [--keys N] [--threads T] [--seconds S] [--seed N]";
static const size_t KEY_BYTES = 16, VALUE_BYTES = 100;

static void check(const leveldb::Status &status, const char *what)
{
	if (!status.ok())
		die(std::string("leveldb: ") + what + ": " + status.ToString());
}

static std::string key_of(uint64_t number)
{
	std::string text = std::to_string(number);
	return std::string(KEY_BYTES - text.size(), '0') + text;
}

/* The value that this write gives this key. */
static std::string value_of(uint64_t key, uint64_t write)
{
	uint64_t words[(VALUE_BYTES + 7) / 8] = {key, write};
	Random random(key ^ write << 32);

	for (size_t i = 2; i < sizeof words / sizeof *words; i++)
		words[i] = random.next();
	return std::string(reinterpret_cast<char *>(words), VALUE_BYTES);
}

/* The write that made a value, or -1 if no write of this key did. */
static int64_t write_of(uint64_t key, const std::string &value)
{
	uint64_t write;

	if (value.size() != VALUE_BYTES)
		return -1;
	std::memcpy(&write, value.data() + sizeof key, sizeof write);
	return value == value_of(key, write) ? (int64_t)write : -1;
}

static void fill(leveldb::DB *db, uint64_t keys)
{
	for (uint64_t key = 0; key < keys;) {
		leveldb::WriteBatch batch;
		for (int i = 0; i < 1000 && key < keys; i++, key++)
			batch.Put(key_of(key), value_of(key, 0));
		check(db->Write(leveldb::WriteOptions(), &batch), "fill");
	}
}

struct alignas(64) Seen {
	uint64_t found, wrong;
};

int main(int count, char **words)
{
	Options options(count, words, USAGE);
	std::string directory = options.text("db", ""), mix = options.text("mix", "");
	uint64_t keys = options.number("keys", "1000000", 0, 1e9);
	unsigned threads = options.number("threads", "2", 1, 10000);
	double seconds = options.number("seconds", "1", 0.01, 86400);
	uint64_t seed = options.number("seed", "1", 0, 1e15);
	options.finish();
	bool is_fill = mix == "fill", writing = mix == "readwhilewriting";
	if (directory.empty() || !(is_fill || writing || mix == "readrandom") || (writing && !keys))
		die(USAGE);

	leveldb::Options how;
	how.create_if_missing = is_fill;
	how.error_if_exists = is_fill;
	leveldb::DB *opened;
	check(leveldb::DB::Open(how, directory, &opened), "open");
	std::unique_ptr<leveldb::DB> db(opened);
	if (is_fill) {
		fill(db.get(), keys);
		return 0;
	}

	std::vector<Seen> seen(threads);
	/* The last write of each key that has ended, if there are writes. */
	std::vector<std::atomic<uint32_t>> ended(writing ? keys : 0);
	uint64_t writes = 0;
	auto read = [&](unsigned number) {
		Random random(seed * 1000003 + number);
		std::string value;
		uint64_t operations = 0;
		do {
			uint64_t key = random.below(keys ? keys : 1);
			/* Acquire pairs with the writer's Release: that write was over before this read. */
			int64_t least = writing ? ended[key].load(std::memory_order_acquire) : 0;
			leveldb::Status status = db->Get(leveldb::ReadOptions(), key_of(key), &value);
			if (status.ok()) {
				seen[number].found++;
				seen[number].wrong += write_of(key, value) < least;
			} else if (!status.IsNotFound()) {
				check(status, "get");
			}
			operations++;
		} while (!time_is_up.load(std::memory_order_relaxed));
		return operations;
	};
	auto write = [&] {
		Random random(seed * 1000003 + threads);
		do {
			uint64_t key = random.below(keys);
			writes++;
			check(db->Put(leveldb::WriteOptions(), key_of(key), value_of(key, writes)), "put");
			ended[key].store(writes, std::memory_order_release);
		} while (!time_is_up.load(std::memory_order_relaxed));
	};
	std::thread writer;
	if (writing)
		writer = std::thread(write);
	Done done = run_for(seconds, threads, read);
	if (writing)
		writer.join();

	Seen all{};
	for (const Seen &each : seen)
		all.found += each.found, all.wrong += each.wrong;
	std::printf("mix=%s keys=%llu ", mix.c_str(), (unsigned long long)keys);
	done.print();
	std::printf(" found=%llu wrong=%llu writes=%llu\n", (unsigned long long)all.found, (unsigned long long)all.wrong,
		    (unsigned long long)writes);
	return all.wrong || all.found != (keys ? done.sum() : 0);
}
