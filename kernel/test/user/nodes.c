// SPDX-License-Identifier: GPL-2.0
/*
 * nodes: whether getcpu and mbind agree with what /sys says of NUMA nodes
 *
 * Goes to each CPU and asks which node it is on; binds a page to each node and asks where it came to lie. Prints, as
 * its last line, `nodes: N nodes C CPUs`. Fails at the first thing that differs.
 */
#define _GNU_SOURCE
#include <err.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST 64

/* <linux/mempolicy.h>, which need not be installed. */
#define MPOL_BIND 2
#define MPOL_F_NODE (1 << 0)
#define MPOL_F_ADDR (1 << 1)

static int is_there(const char *format, int a, int b)
{
	char path[96];

	snprintf(path, sizeof(path), format, a, b);
	return access(path, F_OK) == 0;
}

static void ask_cpu(int cpu, int nodes)
{
	unsigned int got_cpu, got_node;
	cpu_set_t set;
	int node;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "cannot run on CPU %d", cpu);
	if (syscall(SYS_getcpu, &got_cpu, &got_node, NULL))
		err(1, "getcpu");
	for (node = 0; node < nodes; node++) {
		if (is_there("/sys/devices/system/node/node%d/cpu%d", node, cpu))
			break;
	}
	printf("nodes: CPU %d is on node %u\n", cpu, got_node);
	if ((int)got_cpu != cpu || (int)got_node != node)
		errx(1, "CPU %d on node %d: getcpu says CPU %u on node %u", cpu, node, got_cpu, got_node);
}

static void bind_page(int node)
{
	unsigned long mask = 1ul << node;
	long size = sysconf(_SC_PAGESIZE);
	char *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int got = -1;

	if (page == MAP_FAILED)
		err(1, "mmap");
	if (syscall(SYS_mbind, page, size, MPOL_BIND, &mask, sizeof(mask) * 8, 0))
		err(1, "mbind to node %d", node);
	*page = 1;
	if (syscall(SYS_get_mempolicy, &got, NULL, 0, page, MPOL_F_NODE | MPOL_F_ADDR))
		err(1, "get_mempolicy");
	if (got != node)
		errx(1, "a page bound to node %d is on node %d", node, got);
	munmap(page, size);
}

int main(void)
{
	int nodes = 0, cpus = 0, i;

	while (nodes < MOST && is_there("/sys/devices/system/node/node%d", nodes, 0))
		nodes++;
	while (cpus < MOST && is_there("/sys/devices/system/cpu/cpu%d", cpus, 0))
		cpus++;
	for (i = 0; i < cpus; i++)
		ask_cpu(i, nodes);
	for (i = 0; i < nodes; i++)
		bind_page(i);
	printf("nodes: %d nodes %d CPUs\n", nodes, cpus);
	return 0;
}
