/* Attribute objects: they keep the values that are set and refuse those that they do not know. */
#include "conformance.h"

/* Sets each valid value, reads it back, then tries one that is not valid. */
#define ROUND_TRIP(type, object, values, bad)                                                       \
    do {                                                                                            \
        static const int valid_[] = values;                                                         \
        int seen_ = -1;                                                                              \
        for (size_t i_ = 0; i_ < sizeof valid_ / sizeof *valid_; i_++) {                            \
            CHECK_OK(pthread_##object##attr_set##type(&a, valid_[i_]));                             \
            CHECK_OK(pthread_##object##attr_get##type(&a, &seen_));                                  \
            CHECK_EQ(seen_, valid_[i_]);                                                             \
        }                                                                                           \
        CHECK_RC(pthread_##object##attr_set##type(&a, bad), EINVAL);                                \
        CHECK_OK(pthread_##object##attr_get##type(&a, &seen_));                                      \
        CHECK_EQ(seen_, valid_[sizeof valid_ / sizeof *valid_ - 1]);                                 \
    } while (0)
#define LIST(...) {__VA_ARGS__}

CHECK(attributes, mutex_type)
{
    pthread_mutexattr_t a;
    CHECK_OK(pthread_mutexattr_init(&a));
    ROUND_TRIP(type, mutex,
               LIST(PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP),
               99);
}

CHECK(attributes, mutex_robust)
{
    pthread_mutexattr_t a;
    CHECK_OK(pthread_mutexattr_init(&a));
    ROUND_TRIP(robust, mutex, LIST(PTHREAD_MUTEX_STALLED, PTHREAD_MUTEX_ROBUST), 99);
}

CHECK(attributes, mutex_pshared)
{
    pthread_mutexattr_t a;
    CHECK_OK(pthread_mutexattr_init(&a));
    ROUND_TRIP(pshared, mutex, LIST(PTHREAD_PROCESS_SHARED, PTHREAD_PROCESS_PRIVATE), 99);
}

CHECK(attributes, mutex_protocol)
{
    pthread_mutexattr_t a;
    CHECK_OK(pthread_mutexattr_init(&a));
    ROUND_TRIP(protocol, mutex, LIST(PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT, PTHREAD_PRIO_PROTECT), 99);
}

CHECK(attributes, mutex_prioceiling)
{
    pthread_mutexattr_t a;
    CHECK_OK(pthread_mutexattr_init(&a));
    ROUND_TRIP(prioceiling, mutex, LIST(1, 50, 99), 1000);
}

CHECK(attributes, mutex_attributes_do_not_disturb_each_other)
{
    pthread_mutexattr_t a;
    int value;
    CHECK_OK(pthread_mutexattr_init(&a));
    CHECK_OK(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT));
    CHECK_OK(pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST));
    CHECK_OK(pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE));
    CHECK_OK(pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED));
    CHECK_OK(pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK));
    CHECK_OK(pthread_mutexattr_getprotocol(&a, &value));
    CHECK_EQ(value, PTHREAD_PRIO_INHERIT);
    CHECK_OK(pthread_mutexattr_getrobust(&a, &value));
    CHECK_EQ(value, PTHREAD_MUTEX_ROBUST);
    CHECK_OK(pthread_mutexattr_getpshared(&a, &value));
    CHECK_EQ(value, PTHREAD_PROCESS_SHARED);
    CHECK_OK(pthread_mutexattr_gettype(&a, &value));
    CHECK_EQ(value, PTHREAD_MUTEX_ERRORCHECK);
    CHECK_OK(pthread_mutexattr_destroy(&a));
}

CHECK(attributes, cond_pshared)
{
    pthread_condattr_t a;
    CHECK_OK(pthread_condattr_init(&a));
    ROUND_TRIP(pshared, cond, LIST(PTHREAD_PROCESS_SHARED, PTHREAD_PROCESS_PRIVATE), 99);
}

CHECK(attributes, cond_clock)
{
    pthread_condattr_t a;
    CHECK_OK(pthread_condattr_init(&a));
    ROUND_TRIP(clock, cond, LIST(CLOCK_MONOTONIC, CLOCK_REALTIME), CLOCK_PROCESS_CPUTIME_ID);
}
