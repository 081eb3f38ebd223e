// C++'s locks are pthread's underneath, so flashlock replaces them too: std::mutex, std::condition_variable and
// std::shared_mutex.
//
//     c++ -std=c++17 -O2 -pthread -o queue queue.cpp
//     flashlock run -- ./queue
//
// Producers put numbers into a queue of at most 16. Consumers take them out and count them in a table that others read.
// At the end each number must have been counted once. Exit status: 0 if so, 1 if not.
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace {

constexpr int kProducers = 4, kConsumers = 4, kReaders = 2, kNumbers = 5000;

// Blocks whoever puts into a full one, or takes from an empty one.
class BoundedQueue {
  public:
    void put(int number) {
        std::unique_lock lock(mutex_);
        not_full_.wait(lock, [&] { return numbers_.size() < kMost; });
        numbers_.push_back(number);
        not_empty_.notify_one();
    }

    // False: it is empty and closed.
    bool take(int &number) {
        std::unique_lock lock(mutex_);
        not_empty_.wait(lock, [&] { return !numbers_.empty() || closed_; });
        if (numbers_.empty()) return false;
        number = numbers_.front();
        numbers_.pop_front();
        not_full_.notify_one();
        return true;
    }

    void close() {
        std::lock_guard lock(mutex_);
        closed_ = true;
        not_empty_.notify_all();
    }

  private:
    static constexpr std::size_t kMost = 16;
    std::mutex mutex_;
    std::condition_variable not_full_, not_empty_;
    std::deque<int> numbers_;
    bool closed_ = false;
};

// How often each number was taken.
class Counts {
  public:
    void add(int number) {
        std::unique_lock lock(mutex_);
        counts_[number]++;
    }

    bool all_are(int expected) const {
        std::shared_lock lock(mutex_);
        for (const auto &[number, count] : counts_) {
            if (count != expected) return false;
        }
        return counts_.size() == kProducers * kNumbers;
    }

  private:
    mutable std::shared_mutex mutex_;
    std::map<int, int> counts_;
};

}  // namespace

int main() {
    BoundedQueue queue;
    Counts counts;
    std::vector<std::thread> producers, others;
    for (int p = 0; p < kProducers; p++) {
        producers.emplace_back([&queue, p] {
            for (int i = 0; i < kNumbers; i++) queue.put(p * kNumbers + i);
        });
    }
    for (int c = 0; c < kConsumers; c++) {
        others.emplace_back([&queue, &counts] {
            for (int number; queue.take(number);) counts.add(number);
        });
    }
    for (int r = 0; r < kReaders; r++) {
        others.emplace_back([&counts] {
            for (int i = 0; i < 100; i++) counts.all_are(1);
        });
    }
    for (auto &thread : producers) thread.join();
    queue.close();
    for (auto &thread : others) thread.join();
    bool fine = counts.all_are(1);
    std::printf("%d numbers, %s\n", kProducers * kNumbers, fine ? "each counted once" : "NOT each counted once");
    return fine ? 0 : 1;
}
