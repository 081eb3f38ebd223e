/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue locks for a kernel as it is
 *
 * Each algorithm is there as a spinlock, as a mutex and as a readers-writer
 * lock, beside the kernel's own. torture.c runs one of them at a time.
 *
 * A caller provides a node, which must stay where it is from the lock to the
 * unlock. Spinlocks and readers-writer locks are called with preemption
 * disabled, mutexes from tasks that may sleep.
 */
#ifndef FLOCKS_H
#define FLOCKS_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/compiler.h>
#include <linux/mutex.h>
#include <linux/processor.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/spinlock.h>
#include <linux/topology.h>
#include <linux/types.h>

/*
 * What a waiter waits for. Only the waiter goes from WAITING to PARKED, and
 * only who wakes it leaves PARKED:
 *
 *	WAITING -> PARKED -> WAITING | GRANTED
 *	WAITING -> GRANTED
 */
enum flk_state {
	FLK_WAITING,
	FLK_PARKED,
	FLK_GRANTED,
};

struct flk_node {
	struct flk_node		*next;
	struct task_struct	*task;
	u32			state;		/* enum flk_state */
	u16			nid;		/* where the waiter runs */
	bool			shuffler;	/* shfl: it may order those behind it */
	struct flk_node		*second;	/* cna, holder: first of the second queue */
	struct flk_node		*second_last;	/* cna, first of the second queue: its last */
	u64			deadline;	/* cna: of the second queue; shfl: of the batch */
} ____cacheline_aligned_in_smp;

struct flk_lock {
	union {
		raw_spinlock_t	spin;		/* stock */
		struct mutex	mutex;
		rwlock_t	rw;
		struct {
			struct flk_node	*tail;
			union {
				u16	word;		/* shfl: both bytes */
				struct {
					u8	locked;
					u8	queued;	/* newcomers must queue */
				};
			};
			atomic_t	readers;	/* rw.h */
		};
	};
};

/* One lock that can be tortured. */
struct flk_ops {
	const char	*name;
	bool		parks;		/* its waiters sleep */
	void		(*init)(struct flk_lock *lock);
	void		(*lock)(struct flk_lock *lock, struct flk_node *node);
	void		(*unlock)(struct flk_lock *lock, struct flk_node *node);
	/* Of a readers-writer lock only. */
	void		(*lock_read)(struct flk_lock *lock, struct flk_node *node);
	void		(*unlock_read)(struct flk_lock *lock, struct flk_node *node);
};

enum flk_kind { FLK_SPIN, FLK_MUTEX, FLK_RW, FLK_KINDS };

extern const struct flk_ops flk_stock[FLK_KINDS];
extern const struct flk_ops flk_mcs[FLK_KINDS];
extern const struct flk_ops flk_cna[FLK_KINDS];
extern const struct flk_ops flk_shfl[FLK_KINDS];

/* For how long a waiter on another NUMA node may be overtaken, in us. */
extern unsigned int threshold_us;

/* How often a waiter looks before it sleeps. */
#define FLK_LOOKS	500

void flk_init(struct flk_lock *lock);
void flk_sleep(struct flk_node *node);
void flk_rouse(struct flk_node *node);
void flk_wait_parking(struct flk_node *node);
unsigned long flk_parked(void);

/* A new waiter. Queueing is a full barrier: whoever follows a link to it sees what it wrote. */
static __always_inline void flk_prepare(struct flk_node *node)
{
	node->next = NULL;
	node->task = current;
	node->state = FLK_WAITING;
	node->nid = numa_node_id();
	node->shuffler = false;
	node->second = NULL;
	node->deadline = 0;
}

/* Queue behind whoever is last. Return true if there is somebody. */
static __always_inline bool flk_enqueue(struct flk_lock *lock, struct flk_node *node)
{
	struct flk_node *prev = xchg(&lock->tail, node);

	if (prev)
		WRITE_ONCE(prev->next, node);
	return prev;
}

static __always_inline bool flk_is_granted(struct flk_node *node)
{
	/* Pairs with the release in flk_grant(). */
	return smp_load_acquire(&node->state) == FLK_GRANTED;
}

static __always_inline void flk_wait(struct flk_node *node, bool parks)
{
	if (parks)
		flk_wait_parking(node);
	else
		smp_cond_load_acquire(&node->state, VAL == FLK_GRANTED);
}

/*
 * WAITING | PARKED -> GRANTED. Wakes the waiter if it sleeps. Its node may be gone after this, if
 * it is granted; its task is not: it waited when the read section began.
 */
static __always_inline void flk_grant(struct flk_node *node, bool parks)
{
	struct task_struct *task;

	if (!parks) {
		/* Pairs with the acquire in flk_wait() and flk_is_granted(). */
		smp_store_release(&node->state, FLK_GRANTED);
		return;
	}

	rcu_read_lock();
	task = node->task;
	/* Pairs with the cmpxchg() in flk_sleep(). */
	if (xchg(&node->state, FLK_GRANTED) == FLK_PARKED)
		wake_up_process(task);
	rcu_read_unlock();
}

/* A deadline is never 0, which means that there is none. */
static inline u64 flk_deadline(void)
{
	return (local_clock() + 1000ull * threshold_us) | 1;
}

static inline bool flk_is_late(u64 deadline)
{
	return (s64)(local_clock() - deadline) >= 0;
}

#endif /* FLOCKS_H */
