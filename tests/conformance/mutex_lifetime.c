/*
 * The end of a mutex. POSIX lets the next owner destroy a mutex and free its memory as soon as it has released it,
 * while the previous owner may still be inside its own unlock. A thread that touches the mutex after letting another in
 * faults here.
 */
#include "conformance.h"

#include <sys/mman.h>

enum end { PROTECT, UNMAP, SCRIBBLE };

static void *fresh_page(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) FAIL("mmap: %s", code_name(errno));
    return page;
}

/* Makes the page unusable in one of three ways, and usable again once all threads are out. */
static void end_page(void *page, enum end end)
{
    if (end == PROTECT) HOT_OK(mprotect(page, 4096, PROT_NONE));
    if (end == UNMAP) HOT_OK(munmap(page, 4096));
    if (end == SCRIBBLE) memset(page, 0xdb, 4096);
}

static void check_scribble(const unsigned char *page)
{
    for (int i = 0; i < 256; i++)
        if (page[i] != 0xdb) FAIL("byte %d of a dead mutex was written: 0x%02x", i, page[i]);
}

/* ---- The last of N owners ends the mutex ---- */

struct estate {
    pthread_mutex_t mutex;
    int heirs;
    long value;
};

struct last_out {
    int kind, threads, rounds;
    enum end end;
    mutex_call *lock;
    struct estate *estate;
    struct gate begin, left;
    bool over;
};

static void *take_share(void *argument)
{
    struct last_out *l = argument;
    for (int round = 1;; round++) {
        gate_wait(&l->begin, round);
        if (l->over) return NULL;
        struct estate *estate = l->estate;
        HOT_OK(l->lock(&estate->mutex));
        estate->value++;
        bool last = --estate->heirs == 0;
        HOT_OK(pthread_mutex_unlock(&estate->mutex));
        if (last) {
            HOT_OK(pthread_mutex_destroy(&estate->mutex));
            end_page(estate, l->end);
        }
        gate_open(&l->left);
    }
}

static void last_out_ends_it(struct last_out l)
{
    pthread_t threads[8];
    void *page = fresh_page();
    for (int i = 0; i < l.threads; i++) threads[i] = thread_start(take_share, &l);
    for (int round = 1; round <= l.rounds && !time_is_short(); round++) {
        if (l.end == UNMAP) page = fresh_page();
        l.estate = page;
        mutex_make(&l.estate->mutex, l.kind);
        l.estate->heirs = l.threads;
        l.estate->value = 0;
        gate_open(&l.begin);
        gate_wait(&l.left, round * l.threads);
        if (l.end == SCRIBBLE) check_scribble(page);
        if (l.end == PROTECT) {
            HOT_OK(mprotect(page, 4096, PROT_READ | PROT_WRITE));
            HOT_RC(((struct estate *)page)->value, l.threads);
        }
    }
    l.over = true;
    gate_open(&l.begin);
    for (int i = 0; i < l.threads; i++) thread_join(threads[i]);
}

#define LAST_OUT(title, kind_)                                                                      \
    CHECK(mutex_lifetime, title##_protected_by_the_last_of_2)                                       \
    {                                                                                               \
        last_out_ends_it((struct last_out){.kind = kind_, .threads = 2, .rounds = 4000,             \
                                           .end = PROTECT, .lock = pthread_mutex_lock});            \
    }                                                                                               \
    CHECK(mutex_lifetime, title##_protected_by_the_last_of_4)                                       \
    {                                                                                               \
        last_out_ends_it((struct last_out){.kind = kind_, .threads = 4, .rounds = 2000,             \
                                           .end = PROTECT, .lock = pthread_mutex_lock});            \
    }
KINDS(LAST_OUT)

CHECK(mutex_lifetime, unmapped_by_the_last_of_3)
{
    last_out_ends_it((struct last_out){
        .kind = KIND_DEFAULT, .threads = 3, .rounds = 3000, .end = UNMAP, .lock = pthread_mutex_lock});
}

CHECK(mutex_lifetime, overwritten_by_the_last_of_2)
{
    last_out_ends_it((struct last_out){
        .kind = KIND_DEFAULT, .threads = 2, .rounds = 4000, .end = SCRIBBLE, .lock = pthread_mutex_lock});
}

CHECK(mutex_lifetime, overwritten_by_the_last_of_4)
{
    last_out_ends_it((struct last_out){
        .kind = KIND_DEFAULT, .threads = 4, .rounds = 2000, .end = SCRIBBLE, .lock = pthread_mutex_lock});
}

static int lock_patiently(pthread_mutex_t *mutex)
{
    struct timespec far = time_far(CLOCK_MONOTONIC);
    return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &far);
}

CHECK(mutex_lifetime, timed_owners_protected_by_the_last_of_3)
{
    last_out_ends_it((struct last_out){
        .kind = KIND_DEFAULT, .threads = 3, .rounds = 2000, .end = PROTECT, .lock = lock_patiently});
}

static int lock_by_trying(pthread_mutex_t *mutex)
{
    int rc;
    while ((rc = pthread_mutex_trylock(mutex)) == EBUSY)
        ;
    return rc;
}

CHECK(mutex_lifetime, trying_owners_protected_by_the_last_of_2)
{
    last_out_ends_it((struct last_out){
        .kind = KIND_DEFAULT, .threads = 2, .rounds = 4000, .end = PROTECT, .lock = lock_by_trying});
}

/* ---- A list whose nodes are locked hand over hand and freed on the way ---- */

struct node {
    pthread_mutex_t mutex;
    struct node *next;
};

struct list {
    struct node head;
    atomic_long taken;
};

/* Unlinks the first node while holding its predecessor, then frees it: no thread can be waiting, but one may be
 * leaving. */
static bool take_first(struct list *list)
{
    HOT_OK(pthread_mutex_lock(&list->head.mutex));
    struct node *node = list->head.next;
    if (node) {
        HOT_OK(pthread_mutex_lock(&node->mutex));
        list->head.next = node->next;
        HOT_OK(pthread_mutex_unlock(&node->mutex));
    }
    HOT_OK(pthread_mutex_unlock(&list->head.mutex));
    if (!node) return false;
    HOT_OK(pthread_mutex_destroy(&node->mutex));
    memset(node, 0xdb, sizeof *node);
    free(node);
    return true;
}

static void walk(struct list *list)
{
    struct node *here = &list->head;
    HOT_OK(pthread_mutex_lock(&here->mutex));
    for (int steps = 0; steps < 20 && here->next; steps++) {
        struct node *next = here->next;
        HOT_OK(pthread_mutex_lock(&next->mutex));
        HOT_OK(pthread_mutex_unlock(&here->mutex));
        here = next;
    }
    HOT_OK(pthread_mutex_unlock(&here->mutex));
}

static void *walk_and_take(void *argument)
{
    struct list *list = argument;
    do {
        walk(list);
        atomic_fetch_add(&list->taken, 1);
    } while (take_first(list));
    atomic_fetch_sub(&list->taken, 1); /* the last turn took nothing */
    return NULL;
}

CHECK(mutex_lifetime, list_nodes_freed_hand_over_hand)
{
    struct list list = {.head = {.mutex = PTHREAD_MUTEX_INITIALIZER}};
    for (int i = 0; i < 10000; i++) {
        struct node *node = calloc(1, sizeof *node);
        HOT_OK(pthread_mutex_init(&node->mutex, NULL));
        node->next = list.head.next;
        list.head.next = node;
    }
    threads_run(4, walk_and_take, &list);
    CHECK_EQ(atomic_load(&list.taken), 10000);
}

/* ---- The same address again, at once, as another mutex ---- */

struct rebirth {
    pthread_mutex_t mutex;
    struct gate turn, done;
    bool over;
};

/* The next owner: ends the mutex and makes and holds another in its place while the last one may still be leaving. */
static void *inherit(void *argument)
{
    struct rebirth *r = argument;
    for (int i = 1;; i++) {
        gate_wait(&r->turn, i);
        if (r->over) return NULL;
        HOT_OK(pthread_mutex_lock(&r->mutex));
        HOT_OK(pthread_mutex_unlock(&r->mutex));
        HOT_OK(pthread_mutex_destroy(&r->mutex));
        mutex_make(&r->mutex, i % 2 ? PTHREAD_MUTEX_ERRORCHECK : PTHREAD_MUTEX_RECURSIVE);
        HOT_OK(pthread_mutex_lock(&r->mutex));
        HOT_RC(pthread_mutex_lock(&r->mutex), i % 2 ? EDEADLK : 0);
        if (i % 2 == 0) HOT_OK(pthread_mutex_unlock(&r->mutex));
        HOT_OK(pthread_mutex_unlock(&r->mutex));
        HOT_RC(pthread_mutex_unlock(&r->mutex), EPERM);
        gate_open(&r->done);
    }
}

/* A wake-up meant for the dead mutex may arrive at the new one; it must do nothing there. */
CHECK(mutex_lifetime, same_address_reborn_at_once)
{
    struct rebirth r = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread = thread_start(inherit, &r);
    for (int i = 1; i <= 3000 && !time_is_short(); i++) {
        HOT_OK(pthread_mutex_lock(&r.mutex));
        gate_open(&r.turn);
        if (i % 4 == 0) nap_us(50);
        HOT_OK(pthread_mutex_unlock(&r.mutex));
        gate_wait(&r.done, i);
    }
    r.over = true;
    gate_open(&r.turn);
    thread_join(thread);
}

/* The waiter's own stack is gone when the thread that let it in returns from unlock. */
static void *wait_on_own_stack(void *mutex)
{
    char frame[4096];
    memset(frame, 1, sizeof frame);
    HOT_OK(pthread_mutex_lock(mutex));
    HOT_OK(pthread_mutex_unlock(mutex));
    return NULL;
}

CHECK(mutex_lifetime, waiter_threads_end_right_after_their_turn)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < 500 && !time_is_short(); i++) {
        pthread_t threads[3];
        HOT_OK(pthread_mutex_lock(&mutex));
        for (int t = 0; t < 3; t++) threads[t] = thread_start(wait_on_own_stack, &mutex);
        if (i % 2) nap_us(100);
        HOT_OK(pthread_mutex_unlock(&mutex));
        for (int t = 0; t < 3; t++) thread_join(threads[t]);
    }
}
