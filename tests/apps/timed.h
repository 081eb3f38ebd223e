/* What the drivers of tests/apps share: command lines, random numbers, and threads that work for a fixed time. */
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

[[noreturn]] inline void die(const std::string &what)
{
	std::fprintf(stderr, "%s\n", what.c_str());
	std::exit(1);
}

/* `--name value` pairs; each name is asked for once, and what nobody asked for is an error. */
class Options {
	std::vector<std::pair<std::string, std::string>> given;
	std::string usage;

public:
	Options(int count, char **words, const char *usage) : usage(usage)
	{
		for (int i = 1; i < count; i += 2) {
			if (std::strncmp(words[i], "--", 2) || i + 1 == count)
				die(this->usage);
			given.emplace_back(words[i] + 2, words[i + 1]);
		}
	}
	std::string text(const char *name, const char *otherwise)
	{
		for (auto it = given.begin(); it != given.end(); ++it)
			if (it->first == name) {
				std::string value = it->second;
				given.erase(it);
				return value;
			}
		return otherwise;
	}
	double number(const char *name, const char *otherwise, double least, double most)
	{
		std::string value = text(name, otherwise);
		char *end;
		double number = std::strtod(value.c_str(), &end);
		if (value.empty() || *end || !(number >= least && number <= most))
			die("--" + std::string(name) + " wants a number from " + std::to_string((int64_t)least) + " to " +
			    std::to_string((int64_t)most) + ", not '" + value + "'\n" + usage);
		return number;
	}
	void finish() const
	{
		if (!given.empty())
			die("there is no option --" + given.front().first + "\n" + usage);
	}
};

/* xorshift64*, by Vigna: one for each thread. */
class Random {
	uint64_t state;

public:
	explicit Random(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15 + 1) {}
	uint64_t next()
	{
		state ^= state >> 12;
		state ^= state << 25;
		state ^= state >> 27;
		return state * 0x2545f4914f6cdd1d;
	}
	/* From 0 to below. */
	uint64_t below(uint64_t limit) { return (next() >> 32) * limit >> 32; }
};

/* Whether the time is up. */
inline std::atomic<bool> time_is_up{false};

struct Done {
	double seconds;
	/* Operations of each thread. */
	std::vector<uint64_t> operations;

	uint64_t sum() const
	{
		uint64_t sum = 0;
		for (uint64_t each : operations)
			sum += each;
		return sum;
	}
	/* The fields that every driver prints. */
	void print() const
	{
		uint64_t least = UINT64_MAX, most = 0;
		for (uint64_t each : operations) {
			least = each < least ? each : least;
			most = each > most ? each : most;
		}
		std::printf("threads=%zu seconds=%.3f operations=%llu operations_per_second=%.0f least=%llu most=%llu",
			    operations.size(), seconds, (unsigned long long)sum(), sum() / seconds, (unsigned long long)least,
			    (unsigned long long)most);
	}
};

/* Runs work(number) in so many threads, which begin together and end when `time_is_up`; it returns how much it did. */
template <class Work> Done run_for(double seconds, unsigned threads, Work work)
{
	using clock = std::chrono::steady_clock;
	Done done{0, std::vector<uint64_t>(threads)};
	std::atomic<bool> go{false};
	std::vector<std::thread> running;

	for (unsigned number = 0; number < threads; number++)
		running.emplace_back([&, number] {
			while (!go.load(std::memory_order_acquire))
				std::this_thread::yield();
			done.operations[number] = work(number);
		});
	auto start = clock::now();
	go.store(true, std::memory_order_release);
	std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
	time_is_up.store(true);
	/* What was begun in time and ends later counts, and so does the time that it took. */
	for (std::thread &thread : running)
		thread.join();
	done.seconds = std::chrono::duration<double>(clock::now() - start).count();
	return done;
}
