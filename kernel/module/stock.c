// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's own locks, to compare with
 */
#include "flocks.h"

static void spinning_init(struct flk_lock *lock)
{
	raw_spin_lock_init(&lock->spin);
}

static void spinning_acquire(struct flk_lock *lock, struct flk_node *node)
{
	raw_spin_lock(&lock->spin);
}

static void spinning_release(struct flk_lock *lock, struct flk_node *node)
{
	raw_spin_unlock(&lock->spin);
}

static void sleeping_init(struct flk_lock *lock)
{
	mutex_init(&lock->mutex);
}

static void sleeping_acquire(struct flk_lock *lock, struct flk_node *node)
{
	mutex_lock(&lock->mutex);
}

static void sleeping_release(struct flk_lock *lock, struct flk_node *node)
{
	mutex_unlock(&lock->mutex);
}

static void rw_init(struct flk_lock *lock)
{
	rwlock_init(&lock->rw);
}

static void rw_acquire(struct flk_lock *lock, struct flk_node *node)
{
	write_lock(&lock->rw);
}

static void rw_release(struct flk_lock *lock, struct flk_node *node)
{
	write_unlock(&lock->rw);
}

static void rw_read_acquire(struct flk_lock *lock, struct flk_node *node)
{
	read_lock(&lock->rw);
}

static void rw_read_release(struct flk_lock *lock, struct flk_node *node)
{
	read_unlock(&lock->rw);
}

const struct flk_ops flk_stock[FLK_KINDS] = {
	[FLK_SPIN] = {
		.name		= "stock-spin",
		.init		= spinning_init,
		.lock		= spinning_acquire,
		.unlock		= spinning_release,
	},
	[FLK_MUTEX] = {
		.name		= "stock-mutex",
		.parks		= true,
		.init		= sleeping_init,
		.lock		= sleeping_acquire,
		.unlock		= sleeping_release,
	},
	[FLK_RW] = {
		.name		= "stock-rw",
		.init		= rw_init,
		.lock		= rw_acquire,
		.unlock		= rw_release,
		.lock_read	= rw_read_acquire,
		.unlock_read	= rw_read_release,
	},
};
