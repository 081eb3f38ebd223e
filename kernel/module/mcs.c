// SPDX-License-Identifier: GPL-2.0
/*
 * MCS: each waiter looks at a word of its own
 *
 * From J. Mellor-Crummey and M. Scott, "Algorithms for Scalable Synchronization
 * on Shared-Memory Multiprocessors", TOCS 9(1), 1991. The holder's node stays in
 * the queue, at its front, until the holder hands over to the next one. Waiters
 * are served in the order of arrival.
 *
 *	tail ----------------------+
 *	holder -> waiter -> waiter
 */
#include "rw.h"

static __always_inline void acquire(struct flk_lock *lock, struct flk_node *node, bool parks)
{
	flk_prepare(node);
	if (flk_enqueue(lock, node))
		flk_wait(node, parks);
}

static __always_inline void release(struct flk_lock *lock, struct flk_node *node, bool parks)
{
	struct flk_node *next = READ_ONCE(node->next);

	if (!next) {
		/* Pairs with the xchg() of the next one that queues. */
		if (cmpxchg_release(&lock->tail, node, NULL) == node)
			return;
		/* Somebody has queued, and is about to write the link. */
		next = smp_cond_load_relaxed(&node->next, VAL);
	}
	flk_grant(next, parks);
}

#define FLK_ALGORITHM	"mcs"
#define FLK_OPS		flk_mcs
#include "kinds.h"
