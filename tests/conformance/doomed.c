#include "doomed.h"

#include <sys/mman.h>

enum { PAGE = 4096, WAITERS = 3, ROUNDS = 10 };

static const struct doomed *object;
static struct gate ask, answer;
static atomic_bool gone;
static int heirs;

void *doomed_page(void)
{
    static void *page;
    if (!page) {
        page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) FAIL("no page: errno %d", errno);
    }
    return page;
}

static void begin(const struct doomed *it, int kind)
{
    object = it;
    CHECK_EQ(mprotect(doomed_page(), PAGE, PROT_READ | PROT_WRITE), 0);
    ask = answer = (struct gate){0};
    atomic_store(&gone, false);
    object->make(kind);
    CHECK_OK(object->hold());
    /* Once at full speed: lazy binding is none of our business. */
    CHECK_OK(object->release());
    CHECK_OK(object->hold());
}

static void end_it(void)
{
    object->destroy();
    HOT_OK(mprotect(doomed_page(), PAGE, PROT_NONE));
    atomic_store(&gone, true);
}

static void release_slowly(void (*hook)(void))
{
    slow_begin(hook);
    int rc = object->release();
    slow_end();
    CHECK_OK(rc);
}

static void *try_when_asked(void *unused)
{
    for (int asked = 1; !atomic_load(&gone); asked++) {
        gate_wait(&ask, asked);
        int rc = object->try_to_get();
        if (rc == 0)
            end_it();
        else
            HOT_RC(rc, object->busy);
        gate_open(&answer);
    }
    return unused;
}

static void ask_once(void)
{
    if (atomic_load(&gone)) return;
    int asked = gate_count(&ask) + 1;
    gate_open(&ask);
    gate_wait(&answer, asked);
}

void doomed_by_a_passer_by(const struct doomed *it, int kind)
{
    for (int round = 0; round < ROUNDS; round++) {
        begin(it, kind);
        pthread_t heir = thread_start(try_when_asked, NULL);
        release_slowly(ask_once);
        ask_once();
        thread_join(heir);
    }
}

static void *wait_and_end(void *tid)
{
    atomic_store((_Atomic pid_t *)tid, gettid());
    HOT_OK(object->get());
    if (--heirs == 0)
        end_it();
    else
        HOT_OK(object->pass_on ? object->pass_on() : object->release());
    return NULL;
}

static void nap_while_it_lives(void)
{
    if (!atomic_load(&gone)) nap_us(20);
}

void doomed_by_waiters(const struct doomed *it, int kind, int count)
{
    pthread_t threads[WAITERS];
    if (count > WAITERS) FAIL("%d waiters: %d at most", count, WAITERS);
    for (int round = 0; round < ROUNDS / 2; round++) {
        begin(it, kind);
        heirs = count;
        for (int i = 0; i < count; i++) {
            _Atomic pid_t tid = 0;
            threads[i] = thread_start(wait_and_end, &tid);
            while (atomic_load(&tid) == 0) sched_yield();
            settle(tid);
        }
        release_slowly(nap_while_it_lives);
        for (int i = 0; i < count; i++) thread_join(threads[i]);
    }
}
