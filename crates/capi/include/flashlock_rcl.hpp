// flashlock_rcl.hpp: a value under a lock whose critical sections a server thread can run. C++17 and later.
//
//     flashlock::delegated<std::map<int, std::string>> names{flashlock::kind::delegated, "names"};
//     auto size = names.run([&](auto& map) { map.emplace(7, "seven"); return map.size(); });
//
// run() calls a function with the value, under the lock, and returns what it returns: a value, one that can only be
// moved, a reference, or nothing. An exception that leaves the function arrives in the caller of run(), and the lock
// stays usable. The caller decides whether the value is.
//
// A section that waits takes a second parameter:
//
//     queue.run([&](auto& items, flashlock::inside& here) {
//         here.wait(arrived, [&] { return !items.empty(); });
//         …
//     });
//
// flashlock_rcl.h says what differs inside a section, and what is forbidden there; except that exceptions may leave
// one. An exception object is made in the server's thread. It is caught and destroyed in the client's thread, as by
// std::exception_ptr: what it refers to must not be thread-local. With -fno-exceptions a section cannot throw, and
// errors of these classes end the program.
#ifndef FLASHLOCK_RCL_HPP
#define FLASHLOCK_RCL_HPP

#include "flashlock_rcl.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

namespace flashlock {

// What a lock is, unless the configuration says otherwise: see flashlock_rcl_init().
enum class kind : int {
    ordinary = FLASHLOCK_RCL_ORDINARY,
    delegated = FLASHLOCK_RCL_DELEGATED,
    adaptive = FLASHLOCK_RCL_ADAPTIVE,
};

namespace detail {

// Returns if the code is 0. Otherwise throws a std::system_error with that number and the words of
// flashlock_rcl_error().
inline void check(int code)
{
    if (code == 0) return;
#if defined(__cpp_exceptions)
    throw std::system_error(code, std::generic_category(), flashlock_rcl_error());
#else
    std::fprintf(stderr, "flashlock: %s\n", flashlock_rcl_error());
    std::abort();
#endif
}

// Room for what a section returns. The result is made in the server's thread, and moved out in the client's.
template <class R> class returned {
public:
    returned() noexcept = default;
    returned(const returned&) = delete;
    returned& operator=(const returned&) = delete;
    ~returned()
    {
        if (made_) std::destroy_at(get());
    }
    template <class F> void make(F&& function)
    {
        ::new (static_cast<void*>(room_)) R(std::forward<F>(function)());
        made_ = true;
    }
    R take() { return std::move(*get()); }

private:
    R* get() noexcept { return std::launder(reinterpret_cast<R*>(room_)); }

    alignas(R) unsigned char room_[sizeof(R)];
    bool made_ = false;
};

template <class R> class returned<R&> {
public:
    template <class F> void make(F&& function) { at_ = std::addressof(std::forward<F>(function)()); }
    R& take() noexcept { return *at_; }

private:
    R* at_ = nullptr;
};

template <> class returned<void> {
public:
    template <class F> void make(F&& function) { std::forward<F>(function)(); }
    void take() noexcept {}
};

} // namespace detail

// A server, which runs the sections of its locks. When it is destroyed, it waits for the sections that it runs, and its
// locks become ordinary. Do not destroy it in one of its own sections: that ends the program.
class server {
public:
    using options = flashlock_rcl_server_options;
    using statistics_type = flashlock_rcl_statistics;

    // Opens a server. Throws std::system_error, as all of these functions do.
    server() { detail::check(flashlock_rcl_server_open(&at_, nullptr)); }
    explicit server(const options& given) { detail::check(flashlock_rcl_server_open(&at_, &given)); }

    // The server of that name, with the options that the configuration gives it. It is opened if it is not yet open,
    // and never closed.
    static server named(const char* name)
    {
        flashlock_rcl_server_t* at = nullptr;
        detail::check(flashlock_rcl_server_named(&at, name));
        return server(at);
    }

    server(server&& other) noexcept : at_(std::exchange(other.at_, nullptr)), is_named_(other.is_named_) {}
    server& operator=(server&& other) noexcept
    {
        std::swap(at_, other.at_);
        std::swap(is_named_, other.is_named_);
        return *this;
    }
    ~server()
    {
        if (at_ == nullptr || is_named_) return;
        if (flashlock_rcl_server_close(at_) == 0) return;
        std::fprintf(stderr, "flashlock: %s\n", flashlock_rcl_error());
        std::abort();
    }

    std::uint32_t number() const noexcept { return flashlock_rcl_server_number(at_); }

    statistics_type statistics() const
    {
        statistics_type statistics{};
        detail::check(flashlock_rcl_server_statistics(at_, &statistics, sizeof statistics));
        return statistics;
    }

    flashlock_rcl_server_t* native_handle() const noexcept { return at_; }

private:
    explicit server(flashlock_rcl_server_t* at) noexcept : at_(at), is_named_(true) {}

    flashlock_rcl_server_t* at_ = nullptr;
    bool is_named_ = false;
};

// A condition variable for sections. All waiters on it must use the same lock.
class condition {
public:
    condition() noexcept = default;
    condition(const condition&) = delete;
    condition& operator=(const condition&) = delete;

    void notify_one() noexcept { flashlock_rcl_cond_signal(&cond_); }
    void notify_all() noexcept { flashlock_rcl_cond_broadcast(&cond_); }
    flashlock_rcl_cond_t* native_handle() noexcept { return &cond_; }

private:
    flashlock_rcl_cond_t cond_ = FLASHLOCK_RCL_COND_INITIALIZER;
};

template <class T> class delegated;

// Passed to a section that waits. While it waits, other sections run. References to the value stay valid, but what they
// refer to may have changed.
class inside {
public:
    inside(const inside&) = delete;
    inside& operator=(const inside&) = delete;

    // Wake-ups may be spurious.
    void wait(condition& condition) { detail::check(flashlock_rcl_cond_wait(condition.native_handle(), lock_)); }

    template <class Predicate> void wait(condition& condition, Predicate is_so)
    {
        while (!is_so()) wait(condition);
    }

    // Returns whether it was notified, or woke up spuriously, before that time.
    template <class Duration>
    bool wait_until(condition& condition, const std::chrono::time_point<std::chrono::steady_clock, Duration>& time)
    {
        return wait_until(condition, CLOCK_MONOTONIC, time.time_since_epoch());
    }
    template <class Duration>
    bool wait_until(condition& condition, const std::chrono::time_point<std::chrono::system_clock, Duration>& time)
    {
        return wait_until(condition, CLOCK_REALTIME, time.time_since_epoch());
    }

    // Returns what the predicate says at the end.
    template <class Time, class Predicate> bool wait_until(condition& condition, const Time& time, Predicate is_so)
    {
        while (!is_so())
            if (!wait_until(condition, time)) return is_so();
        return true;
    }

    template <class Rep, class Period, class Predicate>
    bool wait_for(condition& condition, const std::chrono::duration<Rep, Period>& time, Predicate is_so)
    {
        return wait_until(condition, std::chrono::steady_clock::now() + time, std::move(is_so));
    }

private:
    template <class T> friend class delegated;

    explicit inside(flashlock_rcl_t* lock) noexcept : lock_(lock) {}

    template <class Duration> bool wait_until(condition& condition, int clock, Duration since)
    {
        using namespace std::chrono;
        const auto whole = floor<seconds>(since);
        timespec until{};
        until.tv_sec = static_cast<time_t>(whole.count());
        until.tv_nsec = static_cast<long>(ceil<nanoseconds>(since - whole).count());
        if (until.tv_nsec == 1000000000) until.tv_sec += 1, until.tv_nsec = 0;
        const int code = flashlock_rcl_cond_clockwait(condition.native_handle(), lock_, clock, &until);
        if (code != ETIMEDOUT) detail::check(code);
        return code == 0;
    }

    flashlock_rcl_t* lock_;
};

// A value that can be accessed only through its lock.
template <class T> class delegated {
public:
    // Makes the value from these arguments, under an ordinary lock.
    template <class... Arguments, class = std::enable_if_t<std::is_constructible_v<T, Arguments...>>>
    explicit delegated(std::in_place_t, Arguments&&... arguments) : value_(std::forward<Arguments>(arguments)...)
    {
    }
    delegated() : value_() {}

    // Makes the value from these arguments, under a lock of that kind and name. The name may be null.
    template <class... Arguments>
    explicit delegated(kind kind, const char* name = nullptr, Arguments&&... arguments)
        : value_(std::forward<Arguments>(arguments)...)
    {
        detail::check(flashlock_rcl_init(&lock_, static_cast<int>(kind), name));
    }

    // The same, under a lock of that server.
    template <class... Arguments>
    explicit delegated(const server& server, Arguments&&... arguments)
        : value_(std::forward<Arguments>(arguments)...)
    {
        assign(server);
    }

    delegated(const delegated&) = delete;
    delegated& operator=(const delegated&) = delete;
    ~delegated() { flashlock_rcl_destroy(&lock_); }

    // Calls section(value) or section(value, inside&) under the lock. Returns or throws what the section does. Throws
    // std::system_error with EDEADLK in a section of the same lock.
    template <class F> decltype(auto) run(F&& section)
    {
        if constexpr (std::is_invocable_v<F, T&, inside&>) {
            return call([&]() -> std::invoke_result_t<F, T&, inside&> {
                inside here(&lock_);
                return std::invoke(std::forward<F>(section), value_, here);
            });
        } else {
            return call([&]() -> std::invoke_result_t<F, T&> { return std::invoke(std::forward<F>(section), value_); });
        }
    }

    // Makes the lock that server's, or ordinary. It waits for the lock.
    void assign(const server& server) { detail::check(flashlock_rcl_assign(&lock_, server.native_handle())); }
    void make_ordinary() { detail::check(flashlock_rcl_assign(&lock_, nullptr)); }
    // An adaptive lock that was assigned may move again. It becomes ordinary first.
    void unpin() noexcept { flashlock_rcl_unpin(&lock_); }

    // The number of the server that runs its sections, or 0. It may change at any time.
    std::uint32_t server_number() const noexcept { return flashlock_rcl_server_of(&lock_); }

    // The value, without the lock: the caller excludes other threads.
    T& unguarded() noexcept { return value_; }

private:
    template <class F> struct call_of {
        F& function;
        detail::returned<std::invoke_result_t<F&>> result{};
        std::exception_ptr thrown{};

        static void* act(void* context)
        {
            auto& call = *static_cast<call_of*>(context);
#if defined(__cpp_exceptions)
            try {
                call.result.make(call.function);
            }
#if defined(__GLIBCXX__)
            catch (abi::__forced_unwind&) {
                throw; // pthread_exit: that ends the program.
            }
#endif
            catch (...) {
                call.thrown = std::current_exception();
            }
#else
            call.result.make(call.function);
#endif
            return nullptr;
        }
    };

    template <class F> std::invoke_result_t<F&> call(F function)
    {
        call_of<F> call{function};
        detail::check(flashlock_rcl_exec(&lock_, &call_of<F>::act, &call, nullptr));
#if defined(__cpp_exceptions)
        if (call.thrown) std::rethrow_exception(std::move(call.thrown));
#endif
        return call.result.take();
    }

    flashlock_rcl_t lock_ = FLASHLOCK_RCL_INITIALIZER;
    T value_;
};

} // namespace flashlock

#endif
