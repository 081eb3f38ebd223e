// C++ on top of the pthread calls: destructors must run when a cancelled thread unwinds out of a wait, and they find
// the mutex held. Each function answers nullptr or what went wrong. Nothing here throws.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <cxxabi.h>
#include <errno.h>
#include <pthread.h>

namespace {

bool held_in_destructor, unwound;

template <class Mutex> bool is_held(Mutex &mutex)
{
    bool held = true;
    std::thread([&] {
        if (mutex.try_lock()) {
            mutex.unlock();
            held = false;
        }
    }).join();
    return held;
}

struct PthreadMutex {
    pthread_mutex_t native = PTHREAD_MUTEX_INITIALIZER;
    void lock() { pthread_mutex_lock(&native); }
    bool try_lock() { return pthread_mutex_trylock(&native) == 0; }
    void unlock() { pthread_mutex_unlock(&native); }
};

// Stands inside the section: destroyed before the lock guard is.
template <class Mutex> struct Witness {
    Mutex &mutex;
    ~Witness() { held_in_destructor = is_held(mutex); }
};

template <class Mutex, class Wait> struct Scene {
    Mutex mutex;
    Wait wait;
    bool waiting = false;

    static void *body(void *argument)
    {
        auto *scene = static_cast<Scene *>(argument);
        try {
            std::unique_lock<Mutex> guard(scene->mutex);
            Witness<Mutex> witness{scene->mutex};
            scene->waiting = true;
            for (;;) scene->wait(guard);
        } catch (abi::__forced_unwind &) {
            unwound = true;
            throw;
        }
    }

    const char *run()
    {
        pthread_t thread;
        void *result;
        held_in_destructor = unwound = false;
        if (pthread_create(&thread, nullptr, body, this)) return "no thread";
        for (bool ready = false; !ready;) {
            std::lock_guard<Mutex> guard(mutex);
            ready = waiting;
        }
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED) return "the thread was not cancelled";
        if (!unwound) return "no catch clause ran";
        if (!held_in_destructor) return "the mutex was free in a destructor";
        if (is_held(mutex)) return "the lock guard did not unlock";
        return nullptr;
    }
};

struct NativeWait {
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    void operator()(std::unique_lock<PthreadMutex> &guard) { pthread_cond_wait(&cond, &guard.mutex()->native); }
};

struct StandardWait {
    std::condition_variable cond;
    void operator()(std::unique_lock<std::mutex> &guard) { cond.wait(guard); }
};

} // namespace

extern "C" const char *cxx_pthread_wait()
{
    for (int i = 0; i < 20; i++) {
        Scene<PthreadMutex, NativeWait> scene;
        if (const char *problem = scene.run()) return problem;
    }
    return nullptr;
}

extern "C" const char *cxx_condition_variable()
{
    for (int i = 0; i < 20; i++) {
        Scene<std::mutex, StandardWait> scene;
        if (const char *problem = scene.run()) return problem;
    }
    return nullptr;
}

extern "C" const char *cxx_timed_waits()
{
    using namespace std::chrono;
    std::mutex mutex;
    std::timed_mutex timed;
    std::condition_variable cond;
    std::unique_lock<std::mutex> guard(mutex);
    auto steady = steady_clock::now() + milliseconds(20);
    while (cond.wait_until(guard, steady) == std::cv_status::no_timeout) {
    }
    if (steady_clock::now() < steady) return "wait_until(steady_clock) was early";
    auto system = system_clock::now() + milliseconds(20);
    while (cond.wait_until(guard, system) == std::cv_status::no_timeout) {
    }
    if (system_clock::now() < system) return "wait_until(system_clock) was early";
    if (cond.wait_for(guard, milliseconds(5), [] { return false; })) return "wait_for was satisfied by nothing";
    if (!is_held(mutex)) return "the mutex is free after a timed wait";
    timed.lock();
    bool got = true;
    std::thread([&] { got = timed.try_lock_for(milliseconds(10)); }).join();
    if (got) return "try_lock_for got a held mutex";
    timed.unlock();
    return timed.try_lock_for(hours(1)) ? nullptr : "try_lock_for missed a free mutex";
}
