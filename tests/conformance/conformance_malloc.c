/*
 * A program whose malloc takes a static pthread mutex, as several allocators do: conformance_malloc SCENARIO. If
 * locking or waiting allocates, that is reported here; it would call itself, and hang or overflow the stack.
 */
#include "conformance.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

/* ---- The allocator: power-of-two classes in one arena, one free list each ---- */

enum { CLASSES = 26, SMALLEST = 4, ARENA = 256 << 20 };

struct header {
    union {
        size_t size_class; /* while allocated */
        struct header *next;
    };
    size_t guard;
};
_Static_assert(sizeof(struct header) == 16, "blocks must stay aligned to 16");

static pthread_mutex_t heap_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct header *free_lists[CLASSES];
static char *arena;
static size_t arena_used;
static const size_t guard = 0x5afe5afe5afe5afe;

static _Noreturn void broken(const char *what)
{
    if (write(2, what, strlen(what)) < 0) _exit(4);
    _exit(3);
}

/* Whether the thread is in a lock call, which may not allocate. */
static __thread volatile bool locking;

/* What the call returns. */
#define LOCKING(call)                                                                               \
    ({                                                                                              \
        locking = true;                                                                             \
        int rc_ = (call);                                                                           \
        locking = false;                                                                            \
        rc_;                                                                                        \
    })

static void heap_lock(void)
{
    if (locking) broken("a lock call allocates\n");
    if (LOCKING(pthread_mutex_lock(&heap_mutex))) broken("heap mutex: lock failed\n");
}

static void heap_unlock(void)
{
    if (LOCKING(pthread_mutex_unlock(&heap_mutex))) broken("heap mutex: unlock failed\n");
}

static struct header *carve(size_t size)
{
    if (!arena) {
        arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED) broken("no arena\n");
    }
    if (arena_used + size > ARENA) broken("arena exhausted\n");
    struct header *header = (struct header *)(arena + arena_used);
    arena_used += size;
    return header;
}

void *malloc(size_t size)
{
    size_t size_class = SMALLEST;
    while ((size_t)1 << size_class < size + sizeof(struct header)) size_class++;
    if (size_class >= CLASSES) return NULL;
    heap_lock();
    struct header *header = free_lists[size_class];
    if (header) {
        if (header->guard != ~guard) broken("a free block was written to\n");
        free_lists[size_class] = header->next;
    } else {
        header = carve((size_t)1 << size_class);
    }
    header->size_class = size_class;
    header->guard = guard;
    heap_unlock();
    return header + 1;
}

void free(void *block)
{
    if (!block) return;
    struct header *header = (struct header *)block - 1;
    heap_lock();
    if (header->guard != guard) broken("freed what was not allocated\n");
    size_t size_class = header->size_class;
    header->guard = ~guard;
    header->next = free_lists[size_class];
    free_lists[size_class] = header;
    heap_unlock();
}

void *calloc(size_t count, size_t size)
{
    void *block = malloc(count * size);
    /* Volatile, or the compiler makes calloc of malloc and memset: a call to this function. */
    volatile char *bytes = block;
    for (size_t i = 0; block && i < count * size; i++) bytes[i] = 0;
    return block;
}

void *realloc(void *block, size_t size)
{
    void *bigger = malloc(size);
    if (!block || !bigger) return bigger;
    size_t old = ((size_t)1 << ((struct header *)block - 1)->size_class) - sizeof(struct header);
    memcpy(bigger, block, old < size ? old : size);
    free(block);
    return bigger;
}

/* More than 16 is not offered; a caller that needs it wastes a block. */
void *aligned_alloc(size_t alignment, size_t size)
{
    if (alignment <= 16) return malloc(size);
    char *block = malloc(size + alignment + sizeof(struct header));
    if (!block) return NULL;
    uintptr_t aligned = ((uintptr_t)block + sizeof(struct header) + alignment - 1) & ~(alignment - 1);
    struct header *header = (struct header *)aligned - 1;
    header->guard = guard;
    header->size_class = SMALLEST; /* freed as such a block; none is reallocated */
    return (void *)aligned;
}

void *memalign(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size)
{
    return aligned_alloc(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = aligned_alloc(alignment, size);
    return *block ? 0 : ENOMEM;
}

/* ---- Scenarios ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void *allocate_and_free(void *unused)
{
    void *blocks[32] = {NULL};
    uint32_t random = (uint32_t)(uintptr_t)&unused;
    for (int i = 0; i < 10000 && (i % 64 || !time_is_short()); i++) {
        int at = random_next(&random) % 32;
        size_t size = random_next(&random) % 500;
        free(blocks[at]);
        blocks[at] = malloc(size);
        memset(blocks[at], i, size);
    }
    for (int i = 0; i < 32; i++) free(blocks[i]);
    return unused;
}

static void scenario_threads(void)
{
    for (int i = 0; i < 3 && !time_is_short(); i++) threads_run(6, allocate_and_free, NULL);
}

static void *queue[4];
static int queued;

static void *produce(void *unused)
{
    for (int i = 0; i < 3000; i++) {
        HOT_OK(pthread_mutex_lock(&mutex));
        while (queued == 4) HOT_OK(pthread_cond_wait(&cond, &mutex));
        queue[queued++] = malloc(100);
        HOT_OK(pthread_cond_broadcast(&cond));
        HOT_OK(pthread_mutex_unlock(&mutex));
    }
    return unused;
}

static void *consume(void *unused)
{
    for (int i = 0; i < 3000; i++) {
        HOT_OK(pthread_mutex_lock(&mutex));
        while (queued == 0) HOT_OK(pthread_cond_wait(&cond, &mutex));
        free(queue[--queued]);
        HOT_OK(pthread_cond_broadcast(&cond));
        HOT_OK(pthread_mutex_unlock(&mutex));
    }
    return unused;
}

static void scenario_waits(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = thread_start(i % 2 ? produce : consume, NULL);
    for (int i = 0; i < 4; i++) thread_join(threads[i]);
}

static int time_outs = 100;

static void *time_out_often(void *unused)
{
    for (int i = 0; i < time_outs; i++) {
        struct timespec deadline = time_after_ms(CLOCK_MONOTONIC, 1);
        free(malloc(i));
        int rc = pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &deadline);
        if (rc == ETIMEDOUT) continue;
        HOT_OK(rc);
        rc = pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &deadline);
        if (rc != ETIMEDOUT) HOT_OK(rc);
        HOT_OK(pthread_mutex_unlock(&mutex));
    }
    return unused;
}

static void scenario_timed(void)
{
    threads_run(6, time_out_often, NULL);
}

static void scenario_dlopen(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) threads[i] = thread_start(allocate_and_free, NULL);
    for (int i = 0; i < 50; i++) {
        static char path[PATH_MAX];
        snprintf(path, sizeof path, "%s", beside_program(i % 2 ? "plugin_statics.so" : "plugin_ctor.so"));
        void *plugin = dlopen(path, RTLD_NOW);
        if (!plugin) FAIL("%s", dlerror());
        CHECK_TRUE(dlsym(plugin, "no such symbol") == NULL && dlerror(), "found what is not there");
        CHECK_EQ(dlclose(plugin), 0);
    }
    for (int i = 0; i < 2; i++) thread_join(threads[i]);
}

/* The dynamic linker makes room for more libraries with thread-local storage than it has counted on: in each thread, at
 * the first call that asks it for such storage. */
enum { MANY_LIBRARIES = 64 };

static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_bool loaded;

static void *lock_when_loaded(void *unused)
{
    while (!atomic_load(&loaded)) nap_us(100);
    struct timespec deadline = time_after_ms(CLOCK_MONOTONIC, 1);
    CHECK_OK(LOCKING(pthread_mutex_lock(&recursive)));
    CHECK_OK(LOCKING(pthread_mutex_unlock(&recursive)));
    CHECK_OK(LOCKING(pthread_rwlock_rdlock(&rwlock)));
    CHECK_OK(LOCKING(pthread_rwlock_unlock(&rwlock)));
    CHECK_OK(LOCKING(pthread_mutex_lock(&mutex)));
    CHECK_RC(LOCKING(pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &deadline)), ETIMEDOUT);
    CHECK_OK(LOCKING(pthread_mutex_unlock(&mutex)));
    free(malloc(1));
    return unused;
}

/* A copy each time: the same file twice is one library. */
static void load_a_copy(const char *library)
{
    static char bytes[1 << 20], path[64];
    int from = open(library, O_RDONLY | O_CLOEXEC), to = memfd_create("copy", MFD_CLOEXEC);
    ssize_t length = read(from, bytes, sizeof bytes);
    CHECK_TRUE(length > 0 && write(to, bytes, length) == length, "cannot copy %s", library);
    close(from);
    snprintf(path, sizeof path, "/proc/self/fd/%d", to);
    if (!dlopen(path, RTLD_NOW)) FAIL("%s", dlerror());
}

static void scenario_libraries(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = thread_start(lock_when_loaded, NULL);
    for (int i = 0; i < MANY_LIBRARIES; i++) load_a_copy(beside_program("plugin_tls.so"));
    atomic_store(&loaded, true);
    for (int i = 0; i < 4; i++) thread_join(threads[i]);
}

static void scenario_fork(void)
{
    CHECK_OK(pthread_atfork(heap_lock, heap_unlock, heap_unlock));
    time_outs = 10;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = thread_start(allocate_and_free, NULL);
    for (int i = 0; i < 30 && !time_is_short(); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            threads_run(2, time_out_often, NULL);
            allocate_and_free(NULL);
            _exit(0);
        }
        CHECK_EQ(process_status(pid), 0);
    }
    for (int i = 0; i < 3; i++) thread_join(threads[i]);
}

static pthread_key_t key;

static void free_late(void *block)
{
    free(block);
    free(malloc(10));
}

static void *leave_block(void *unused)
{
    CHECK_OK(pthread_setspecific(key, malloc(50)));
    return unused;
}

static void scenario_destructors(void)
{
    CHECK_OK(pthread_key_create(&key, free_late));
    for (int i = 0; i < 60 && !time_is_short(); i++) threads_run(16, leave_block, NULL);
}

static void free_and_unlock(void *block)
{
    free(block);
    CHECK_OK(pthread_mutex_unlock(&mutex));
}

static void *wait_to_be_cancelled(void *unused)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    queued++;
    pthread_cleanup_push(free_and_unlock, malloc(10));
    for (;;) CHECK_OK(pthread_cond_wait(&cond, &mutex));
    pthread_cleanup_pop(0);
    return unused;
}

static void scenario_cancel(void)
{
    for (int i = 0; i < 100; i++) {
        pthread_t thread = thread_start(wait_to_be_cancelled, NULL);
        if (i % 2) nap_us(100);
        CHECK_OK(pthread_cancel(thread));
        CHECK_TRUE(thread_join(thread) == PTHREAD_CANCELED, "not cancelled");
    }
}

static void scenario_mutexes(void)
{
    for (int i = 0; i < 20000; i++) {
        pthread_mutex_t *made = malloc(sizeof *made);
        CHECK_OK(pthread_mutex_init(made, NULL));
        CHECK_OK(pthread_mutex_lock(made));
        if (i % 500 == 0) CHECK_RC(trylock_elsewhere(made), EBUSY);
        CHECK_OK(pthread_mutex_unlock(made));
        CHECK_OK(pthread_mutex_destroy(made));
        free(made);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"threads", scenario_threads}, {"waits", scenario_waits},   {"timed", scenario_timed},
    {"dlopen", scenario_dlopen},   {"fork", scenario_fork},     {"destructors", scenario_destructors},
    {"cancel", scenario_cancel},   {"mutexes", scenario_mutexes}, {"libraries", scenario_libraries},
};

int main(int count, char **arguments)
{
    for (size_t i = 0; count == 2 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(arguments[1], scenarios[i].name) != 0) continue;
        time_is_short(); /* starts its clock */
        scenarios[i].run();
        return 0;
    }
    fprintf(stderr, "conformance_malloc: needs the name of a scenario\n");
    return 2;
}
