/* Locks a mutex before libc's own constructor has run. */
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void early(void)
{
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = early;

int main(void)
{
    return 0;
}
