/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The three kinds of lock that an algorithm becomes. The includer has defined
 * its name (FLK_ALGORITHM), that of its table (FLK_OPS), acquire() and release().
 * These are inlined once for waiters that sleep and once for those that do not.
 */
#include "rw.h"

static void spinning_acquire(struct flk_lock *lock, struct flk_node *node)
{
	acquire(lock, node, false);
}

static void spinning_release(struct flk_lock *lock, struct flk_node *node)
{
	release(lock, node, false);
}

static void sleeping_acquire(struct flk_lock *lock, struct flk_node *node)
{
	acquire(lock, node, true);
}

static void sleeping_release(struct flk_lock *lock, struct flk_node *node)
{
	release(lock, node, true);
}

static void rw_acquire(struct flk_lock *lock, struct flk_node *node)
{
	flk_rw_lock(lock, node, spinning_acquire, spinning_release);
}

static void rw_release(struct flk_lock *lock, struct flk_node *node)
{
	flk_rw_unlock(lock);
}

static void rw_read_acquire(struct flk_lock *lock, struct flk_node *node)
{
	flk_rw_read_lock(lock, node, spinning_acquire, spinning_release);
}

static void rw_read_release(struct flk_lock *lock, struct flk_node *node)
{
	flk_rw_read_unlock(lock);
}

const struct flk_ops FLK_OPS[FLK_KINDS] = {
	[FLK_SPIN] = {
		.name		= FLK_ALGORITHM "-spin",
		.init		= flk_init,
		.lock		= spinning_acquire,
		.unlock		= spinning_release,
	},
	[FLK_MUTEX] = {
		.name		= FLK_ALGORITHM "-mutex",
		.parks		= true,
		.init		= flk_init,
		.lock		= sleeping_acquire,
		.unlock		= sleeping_release,
	},
	[FLK_RW] = {
		.name		= FLK_ALGORITHM "-rw",
		.init		= flk_init,
		.lock		= rw_acquire,
		.unlock		= rw_release,
		.lock_read	= rw_read_acquire,
		.unlock_read	= rw_read_release,
	},
};
