/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A readers-writer lock around any queue lock
 *
 * As in the kernel's qrwlock: readers are counted in a word, and whoever cannot
 * enter at once waits in the queue, whose holder alone waits for the word. So
 * the queue decides the order.
 *
 *	readers		who
 *	0		nobody
 *	WRITING		a writer
 *	n * READER	n readers, some of which may be about to step back
 *	| WANTED	a writer is the holder of the queue: new readers queue
 */
#ifndef FLOCKS_RW_H
#define FLOCKS_RW_H

#include "flocks.h"

#define FLK_WRITING	0x01
#define FLK_WANTED	0x02
#define FLK_WRITER	(FLK_WRITING | FLK_WANTED)
#define FLK_READER	0x10

typedef void (*flk_queue_fn)(struct flk_lock *lock, struct flk_node *node);

static __always_inline void flk_rw_read_lock(struct flk_lock *lock, struct flk_node *node,
					     flk_queue_fn enter, flk_queue_fn leave)
{
	if (!(atomic_add_return_acquire(FLK_READER, &lock->readers) & FLK_WRITER))
		return;
	atomic_sub(FLK_READER, &lock->readers);

	enter(lock, node);
	atomic_add(FLK_READER, &lock->readers);
	/* No writer can become the holder of the queue meanwhile. Pairs with flk_rw_unlock(). */
	atomic_cond_read_acquire(&lock->readers, !(VAL & FLK_WRITING));
	leave(lock, node);
}

static __always_inline void flk_rw_read_unlock(struct flk_lock *lock)
{
	/* Pairs with the acquire of the next writer. */
	atomic_sub_return_release(FLK_READER, &lock->readers);
}

static __always_inline void flk_rw_lock(struct flk_lock *lock, struct flk_node *node,
					flk_queue_fn enter, flk_queue_fn leave)
{
	enter(lock, node);
	/* 0 -> WRITING */
	if (atomic_cmpxchg_acquire(&lock->readers, 0, FLK_WRITING)) {
		atomic_or(FLK_WANTED, &lock->readers);
		/* WANTED -> WRITING */
		do {
			atomic_cond_read_relaxed(&lock->readers, VAL == FLK_WANTED);
		} while (atomic_cmpxchg_acquire(&lock->readers, FLK_WANTED, FLK_WRITING) !=
			 FLK_WANTED);
	}
	leave(lock, node);
}

static __always_inline void flk_rw_unlock(struct flk_lock *lock)
{
	/* Pairs with the acquire of the next reader or writer. */
	atomic_fetch_andnot_release(FLK_WRITING, &lock->readers);
}

#endif /* FLOCKS_RW_H */
