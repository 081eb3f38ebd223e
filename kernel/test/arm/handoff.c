// SPDX-License-Identifier: GPL-2.0
/*
 * Uses arm's macros for MCS locks, which no configuration of arm does: a value
 * that is not 1, and arguments that need their parentheses.
 */
#include <linux/module.h>
#include <asm/mcs_spinlock.h>

void wait_for(unsigned int *words, int which);

void hand_off(unsigned int *words, int which, unsigned int value);

void wait_for(unsigned int *words, int which)
{
	arch_mcs_spin_wait(words + which);
}

void hand_off(unsigned int *words, int which, unsigned int value)
{
	if (which)
		arch_mcs_lock_handoff(words + which, value | 1);
	else
		arch_mcs_lock_handoff(words, value);
}

MODULE_DESCRIPTION("arm's hand-off macros");
MODULE_LICENSE("GPL");
