// SPDX-License-Identifier: GPL-2.0
/*
 * CNA: MCS, and the waiters of one NUMA node first
 *
 * From D. Dice and A. Kogan, "Compact NUMA-aware Locks", EuroSys 2019. Whoever
 * releases the lock looks for the next waiter on its own node, and moves those
 * before that one into a second queue. The second queue is handed on with the
 * lock, in the next holder's node.
 *
 *	tail -------------------------------------------+
 *	holder -> waiter on B -> waiter on A -> waiter on B
 *	  | second
 *	  +-----> waiter on C -> waiter on D
 *	            | second_last       |
 *	            +-------------------+
 *
 * It returns to the front of the main queue when nobody on the holder's node is
 * left there, or when it is older than the threshold.
 *
 * Departures: the limit is a time and not a random number, as in the series in
 * ../patches; the order of arrival is kept among those that return. Unlike the
 * series, a release scans the queue for as long as it takes, as in the paper.
 *
 * Order and bound are those of the series (qspinlock_cna.h): read the second
 * queue and, behind it, the main queue as one list; neither moving nor returning
 * changes it.
 */
#include "rw.h"

static __always_inline void acquire(struct flk_lock *lock, struct flk_node *node, bool parks)
{
	flk_prepare(node);
	if (flk_enqueue(lock, node))
		flk_wait(node, parks);
}

/* Put the waiters from @first to @last, which leave the main queue, behind the second one. */
static void set_aside(struct flk_node *me, struct flk_node *first, struct flk_node *last)
{
	last->next = NULL;
	if (me->second) {
		me->second->second_last->next = first;
	} else {
		me->second = first;
		me->deadline = flk_deadline();
	}
	me->second->second_last = last;
}

/*
 * The next waiter on our node, or NULL. Those before it are set aside: they are
 * not the tail, because it is behind them, so nobody else writes their links.
 */
static struct flk_node *find_at_home(struct flk_node *me, struct flk_node *next)
{
	struct flk_node *last = NULL, *waiter = next;

	for (; waiter; last = waiter, waiter = READ_ONCE(waiter->next)) {
		if (waiter->nid != me->nid)
			continue;
		if (last)
			set_aside(me, next, last);
		return waiter;
	}

	return NULL;
}

static __always_inline void release(struct flk_lock *lock, struct flk_node *node, bool parks)
{
	struct flk_node *next = READ_ONCE(node->next), *second = node->second, *at_home = NULL;

	if (!next) {
		struct flk_node *last = second ? second->second_last : NULL;

		/* The second queue, if any, becomes the main one. Pairs with the next xchg(). */
		if (cmpxchg_release(&lock->tail, node, last) == node) {
			if (second)
				flk_grant(second, parks);
			return;
		}
		next = smp_cond_load_relaxed(&node->next, VAL);
	}

	if (!second || !flk_is_late(node->deadline))
		at_home = find_at_home(node, next);

	if (at_home) {
		at_home->second = node->second;
		at_home->deadline = node->deadline;
		next = at_home;
	} else if (second) {
		second->second_last->next = next;
		next = second;
	}
	flk_grant(next, parks);
}

#define FLK_ALGORITHM	"cna"
#define FLK_OPS		flk_cna
#include "kinds.h"
