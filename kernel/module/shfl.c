// SPDX-License-Identifier: GPL-2.0
/*
 * ShflLock: the waiters bring themselves into order
 *
 * From S. Kashyap and others, "Scalable and Practical Locking with Shuffling",
 * SOSP 2019. The lock is a byte; behind it is a queue whose head alone waits for
 * the byte. One waiter at a time is the shuffler: while it waits, it moves
 * waiters on its own NUMA node forward, right behind itself and those that have
 * been moved before. Nothing of this is done by the holder.
 *
 *	locked		tail -------------------------------------+
 *	      head -> waiter on A -> waiter on B -> waiter on A -> waiter
 *	      shuffler (on A)  ^------------------------+
 *
 * A batch is a head and those that have been moved behind it. Its last member
 * becomes the shuffler and goes on from there. So all waiters before the
 * shuffler are of its batch, and a head without a batch begins one: there is one
 * shuffler at most. It changes links behind itself only, and never that of the
 * tail, which newcomers write.
 *
 * Departures: a batch has a deadline, not a size. So a waiter with w others
 * before it waits for w + 1 batches at most, each of which lasts for the
 * threshold and then for those who have been moved. Newcomers never take a
 * mutex from those who queue, either.
 */
#include <asm/byteorder.h>
#include "rw.h"

/* The word with both bytes: locked, and nobody queues. */
#define LOCKED_ALONE	((__force u16)cpu_to_le16(1))

/* @waiter belongs to the batch of @me. One that sleeps will soon have its turn. */
static __always_inline void join(struct flk_node *waiter, struct flk_node *me, bool parks)
{
	waiter->deadline = me->deadline;
	if (parks && READ_ONCE(waiter->state) == FLK_PARKED)
		flk_rouse(waiter);
}

static __always_inline bool may_shuffle(struct flk_node *me, bool is_head)
{
	/* Pairs with the release at the end of shuffle(): the links that the last one wrote. */
	return (is_head && !me->deadline) || smp_load_acquire(&me->shuffler);
}

/* @me looks at those behind it once, or until its turn comes. */
static __always_inline void shuffle(struct flk_lock *lock, struct flk_node *me, bool is_head,
				    bool parks)
{
	struct flk_node *last = me, *prev = me, *waiter, *next;

	if (!me->deadline)
		me->deadline = flk_deadline();
	me->shuffler = false;
	if (flk_is_late(me->deadline))
		return;

	while ((waiter = READ_ONCE(prev->next)) && (next = READ_ONCE(waiter->next))) {
		if (waiter->nid != me->nid) {
			prev = waiter;
		} else {
			join(waiter, me, parks);
			if (prev == last) {
				prev = waiter;
			} else {
				WRITE_ONCE(prev->next, next);
				WRITE_ONCE(waiter->next, last->next);
				WRITE_ONCE(last->next, waiter);
			}
			last = waiter;
		}
		if (is_head ? !READ_ONCE(lock->locked) : flk_is_granted(me))
			break;
	}
	/* Pairs with the acquire in may_shuffle(). */
	smp_store_release(&last->shuffler, true);
}

static __always_inline void wait_for_head(struct flk_lock *lock, struct flk_node *node, bool parks)
{
	int looks = 0;

	while (!flk_is_granted(node)) {
		if (may_shuffle(node, false))
			shuffle(lock, node, false, parks);
		cpu_relax();
		if (parks && (++looks == FLK_LOOKS || need_resched())) {
			looks = 0;
			flk_sleep(node);
		}
	}
}

/* -> locked, by whoever is the head: newcomers are kept away. */
static __always_inline void wait_for_byte(struct flk_lock *lock, struct flk_node *node, bool parks)
{
	for (;;) {
		/* The last one of an earlier queue may have allowed it again. */
		if (!READ_ONCE(lock->queued))
			WRITE_ONCE(lock->queued, 1);
		if (may_shuffle(node, true))
			shuffle(lock, node, true, parks);
		/* Pairs with the release in release(). */
		if (!READ_ONCE(lock->locked) && !cmpxchg_acquire(&lock->locked, 0, 1))
			return;
		cpu_relax();
		if (parks)
			cond_resched();
	}
}

static __always_inline void acquire(struct flk_lock *lock, struct flk_node *node, bool parks)
{
	struct flk_node *next;

	/* free, nobody queues -> locked */
	if (!READ_ONCE(lock->word) && !cmpxchg_acquire(&lock->word, 0, LOCKED_ALONE))
		return;

	flk_prepare(node);
	if (flk_enqueue(lock, node))
		wait_for_head(lock, node, parks);
	wait_for_byte(lock, node, parks);

	/* The holder needs no node: make the next one the head. */
	next = READ_ONCE(node->next);
	if (!next) {
		if (cmpxchg(&lock->tail, node, NULL) == node) {
			WRITE_ONCE(lock->queued, 0);
			return;
		}
		next = smp_cond_load_relaxed(&node->next, VAL);
	}
	flk_grant(next, parks);
}

/* locked -> free */
static __always_inline void release(struct flk_lock *lock, struct flk_node *node, bool parks)
{
	/* Pairs with the acquires in acquire() and wait_for_byte(). */
	smp_store_release(&lock->locked, 0);
}

#define FLK_ALGORITHM	"shfl"
#define FLK_OPS		flk_shfl
#include "kinds.h"
