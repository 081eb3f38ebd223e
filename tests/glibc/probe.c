/*
 * What is this program running on? Prints three kinds of lines:
 *
 *     glibc 2.36          the C library's own word for its version, which no preload library changes
 *     locks glibc         whose pthread_mutex_lock it is: glibc's counts the users of a mutex it holds, flashlock's
 *                         does not
 *     loaded PATH         every file that the dynamic linker has loaded, except this one
 */
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int print_path(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    if (info->dlpi_name[0] == '/') printf("loaded %s\n", info->dlpi_name);
    return 0;
}

int main(void)
{
    char version[64];
    if (confstr(_CS_GNU_LIBC_VERSION, version, sizeof version) == 0) return 1;
    printf("%s\n", version);

    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    if (pthread_mutex_lock(&mutex) != 0) return 1;
    printf("locks %s\n", mutex.__data.__nusers == 1 ? "glibc" : "flashlock");
    if (pthread_mutex_unlock(&mutex) != 0) return 1;

    dl_iterate_phdr(print_path, NULL);
    return 0;
}
