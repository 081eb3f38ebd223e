// flashlock::delegated: values in and out, exceptions, condition variables. Prints verdicts as the C checks do.
#include <flashlock_rcl.hpp>

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using flashlock::condition;
using flashlock::delegated;
using flashlock::inside;
using flashlock::kind;
using flashlock::server;

namespace {

struct failure {
    int line;
    const char* what;
};

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) throw failure{__LINE__, #condition};                                             \
    } while (0)

constexpr long threads = 4, rounds = 2000;

void everywhere(const std::function<void(int)>& body)
{
    std::vector<std::thread> all;
    for (int me = 0; me < threads; me++) all.emplace_back(body, me);
    for (auto& thread : all) thread.join();
}

// A check is made of an ordinary lock, and of a delegated one.
template <class T, class Body> void both(Body body)
{
    for (kind kind : {kind::ordinary, kind::delegated}) {
        delegated<T> value{kind, nullptr};
        body(value);
    }
}

void excludes()
{
    both<long>([](auto& count) {
        everywhere([&](int) {
            for (long round = 0; round < rounds; round++) count.run([](long& count) { ++count; });
        });
        CHECK(count.unguarded() == threads * rounds);
    });
}

void runs_where_the_lock_says()
{
    server server;
    delegated<int> value{server, 7};
    const auto here = std::this_thread::get_id();
    const auto there = [](int&) { return std::this_thread::get_id(); };
    CHECK(value.run(there) != here && value.server_number() == server.number());
    value.make_ordinary();
    CHECK(value.run(there) == here && value.server_number() == 0);
    CHECK(value.run([](const int& seven) { return seven; }) == 7);
}

// Only moved, in and out; more than rides in a line; no default constructor; references; nothing; member functions.
void values_go_in_and_out()
{
    both<std::vector<std::unique_ptr<int>>>([](auto& all) {
        auto brought = std::make_unique<int>(7);
        all.run([brought = std::move(brought)](auto& all) mutable { all.push_back(std::move(brought)); });
        std::unique_ptr<int> back = all.run([](auto& all) { return std::move(all.back()); });
        CHECK(*back == 7);
        struct large {
            long words[100];
            explicit large(long word) : words{word} {}
        };
        CHECK(all.run([](auto&) { return large(5); }).words[0] == 5);
        int outside = 1;
        int& same = all.run([&](auto&) -> int& { return outside; });
        CHECK(&same == &outside);
        const auto nothing = [](auto&) {};
        static_assert(std::is_void_v<decltype(all.run(nothing))>);
        all.run(&std::vector<std::unique_ptr<int>>::clear);
        CHECK(all.run([](auto& all) { return all.empty(); }));
    });
    delegated<std::pair<std::string, int>> named{kind::ordinary, "pair", "text", 3};
    delegated<std::string> in_place{std::in_place, 3, 'x'};
    CHECK(named.unguarded().first == "text" && in_place.unguarded() == "xxx");
}

std::atomic<int> alive{0};

struct counted {
    counted() { ++alive; }
    counted(const counted&) { ++alive; }
    counted(counted&&) noexcept { ++alive; }
    counted& operator=(const counted&) = default;
    counted& operator=(counted&&) = default;
    ~counted() { --alive; }
};

struct our_error : std::runtime_error {
    using runtime_error::runtime_error;
    counted counted_too;
};

void exceptions_travel_to_the_client()
{
    both<long>([](auto& count) {
        everywhere([&](int me) {
            for (int round = 0; round < 200; round++) {
                const std::string text = std::to_string(me) + " " + std::to_string(round);
                try {
                    counted result = count.run([&](long& count) {
                        counted inside;
                        ++count;
                        if (round % 10 == 0) throw our_error(text);
                        return inside;
                    });
                    CHECK(round % 10 != 0);
                } catch (const our_error& error) {
                    CHECK(round % 10 == 0 && error.what() == text);
                }
            }
        });
        CHECK(count.run([](long& count) { return count; }) == threads * 200);
        CHECK(alive == 0);
    });
}

void a_section_inside_is_refused()
{
    both<int>([](auto& value) {
        int code = 0;
        std::string words;
        try {
            value.run([&](int&) { value.run([](int& value) { value = 1; }); });
        } catch (const std::system_error& error) {
            code = error.code().value();
            words = error.what();
        }
        CHECK(code == EDEADLK && words.find("wait for itself") != std::string::npos);
        CHECK(value.run([](int& value) { return value; }) == 0);
    });
}

void condition_variables()
{
    constexpr int items = 200;
    both<std::deque<int>>([](auto& queue) {
        condition arrived, room;
        std::atomic<long> sum{0};
        everywhere([&](int me) {
            for (int item = 0; item < items; item++) {
                if (me % 2 == 0) {
                    queue.run([&](auto& queue, inside& here) {
                        here.wait(room, [&] { return queue.size() < 2; });
                        queue.push_back(item);
                        arrived.notify_one();
                    });
                } else {
                    sum += queue.run([&](auto& queue, inside& here) {
                        here.wait(arrived, [&] { return !queue.empty(); });
                        const int item = queue.front();
                        queue.pop_front();
                        room.notify_all();
                        return item;
                    });
                }
            }
        });
        CHECK(sum == threads / 2 * items * (items - 1) / 2 && queue.unguarded().empty());
    });
}

void waits_end_in_time()
{
    both<int>([](auto& value) {
        condition never;
        value.run([&](int&, inside& here) {
            const auto no = [] { return false; };
            CHECK(!here.wait_for(never, std::chrono::milliseconds(5), no));
            CHECK(!here.wait_until(never, std::chrono::steady_clock::now() - std::chrono::hours(1)));
            CHECK(!here.wait_until(never, std::chrono::system_clock::now() + std::chrono::nanoseconds(1), no));
            CHECK(here.wait_for(never, std::chrono::hours(1), [] { return true; }));
        });
    });
}

void servers_move_and_count()
{
    server::options options = FLASHLOCK_RCL_SERVER_OPTIONS;
    options.threads = 8;
    server first{options};
    const auto number = first.number();
    server second = std::move(first);
    CHECK(second.number() == number && first.number() == 0);
    CHECK(server::named("x").number() == server::named("x").number());
    {
        delegated<int> value{second};
        value.run([](int& value) { ++value; });
        value.assign(server::named("x"));
        value.run([](int& value) { ++value; });
        CHECK(value.unguarded() == 2);
    }
    while (second.statistics().sections == 0) std::this_thread::yield(); // It counts when a scan ends.
    options.threads = 5000;
    try {
        server refused{options};
        CHECK(!"5000 threads");
    } catch (const std::system_error& error) {
        CHECK(error.code().value() == EINVAL && std::strstr(error.what(), "1 to 4094"));
    }
}

} // namespace

int main()
{
    const std::pair<const char*, void (*)()> checks[] = {
        {"cxx.excludes", excludes},
        {"cxx.runs_where_the_lock_says", runs_where_the_lock_says},
        {"cxx.values_go_in_and_out", values_go_in_and_out},
        {"cxx.exceptions_travel_to_the_client", exceptions_travel_to_the_client},
        {"cxx.a_section_inside_is_refused", a_section_inside_is_refused},
        {"cxx.condition_variables", condition_variables},
        {"cxx.waits_end_in_time", waits_end_in_time},
        {"cxx.servers_move_and_count", servers_move_and_count},
    };
    int failed = 0, passed = 0;
    for (auto [name, check] : checks) {
        try {
            check();
            std::cout << "ok " << name << std::endl;
            ++passed;
        } catch (const failure& failure) {
            std::cout << "not ok " << name << ": " << failure.what << " (cxx.cpp:" << failure.line << ")" << std::endl;
            ++failed;
        }
    }
    std::cout << passed << " passed, " << failed << " failed" << std::endl;
    return failed > 0;
}
