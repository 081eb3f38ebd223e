/* A library that has semaphores of its own, made of a mutex and a condition variable, and a thread that uses them
 * (with PROGRAM defined: the program that is linked to it). */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

#ifndef PROGRAM

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t posted = PTHREAD_COND_INITIALIZER;

int sem_init(sem_t *semaphore, int shared, unsigned value)
{
    (void)shared;
    *(unsigned *)semaphore = value;
    return 0;
}

int sem_post(sem_t *semaphore)
{
    pthread_mutex_lock(&mutex);
    ++*(unsigned *)semaphore;
    pthread_cond_broadcast(&posted);
    return pthread_mutex_unlock(&mutex);
}

int sem_wait(sem_t *semaphore)
{
    pthread_mutex_lock(&mutex);
    while (*(unsigned *)semaphore == 0) pthread_cond_wait(&posted, &mutex);
    --*(unsigned *)semaphore;
    return pthread_mutex_unlock(&mutex);
}

#else

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int waits;

static void *wait_for_both(void *unused)
{
    pthread_mutex_lock(&mutex);
    waits = 1;
    pthread_cond_signal(&begun);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 1000; i++) sem_wait(&semaphore);
    return unused;
}

int main(void)
{
    pthread_t thread;
    sem_init(&semaphore, 0, 0);
    if (pthread_create(&thread, NULL, wait_for_both, NULL) != 0) return 2;
    pthread_mutex_lock(&mutex);
    while (!waits) pthread_cond_wait(&begun, &mutex);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 1000; i++) sem_post(&semaphore);
    pthread_join(thread, NULL);
    puts("1000 permits");
    return 0;
}

#endif
