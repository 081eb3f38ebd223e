// SPDX-License-Identifier: MIT OR Apache-2.0
//
// list: the same set of keys as a sorted doubly linked list and as a binary search tree, changed under one mutex. The
// two must agree at every look; pointers torn by a second thread do not survive that.
#include "torture.h"

enum { KEYS = 128 };

struct node {
    struct node *volatile next, *volatile prev;
    struct node *volatile left, *volatile right;
    volatile int key;
    volatile bool present;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct node nodes[KEYS];
static struct node head = { .next = &head, .prev = &head, .key = KEYS };  // a ring through the head
static struct node *volatile root;
static volatile int size;

static void list_insert(struct node *n, struct worker *w)
{
    struct node *after = &head;
    while (after->next != &head && after->next->key < n->key)
        after = after->next;
    n->prev = after;
    n->next = after->next;
    burn(below(w, 64));
    after->next->prev = n;
    burn(below(w, 64));
    after->next = n;
}

static void list_remove(struct node *n, struct worker *w)
{
    if (n->prev->next != n || n->next->prev != n)
        fail("list torn around key %d", n->key);
    n->prev->next = n->next;
    burn(below(w, 64));
    n->next->prev = n->prev;
}

static struct node *volatile *tree_place(int key)
{
    struct node *volatile *place = &root;
    int steps = 0;
    while (*place && (*place)->key != key) {
        if (++steps > KEYS)
            fail("the tree has a cycle");
        place = key < (*place)->key ? &(*place)->left : &(*place)->right;
    }
    return place;
}

static void tree_insert(struct node *n, struct worker *w)
{
    struct node *volatile *place = tree_place(n->key);
    if (*place)
        fail("key %d is in the tree, but not present", n->key);
    n->left = n->right = NULL;
    burn(below(w, 64));
    *place = n;
}

static void tree_remove(struct node *n, struct worker *w)
{
    struct node *volatile *place = tree_place(n->key);
    if (*place != n)
        fail("key %d is present, but not in the tree", n->key);
    if (!n->left || !n->right) {
        *place = n->left ? n->left : n->right;
        return;
    }
    // Two children: the smallest node of the right side takes n's place.
    struct node *volatile *spot = &n->right;
    while ((*spot)->left)
        spot = &(*spot)->left;
    struct node *heir = *spot;
    *spot = heir->right;
    burn(below(w, 64));
    heir->left = n->left;
    heir->right = n->right;
    *place = heir;
}

static int tree_size(const struct node *n, int depth)
{
    if (depth > KEYS)
        fail("the tree has a cycle");
    return n ? 1 + tree_size(n->left, depth + 1) + tree_size(n->right, depth + 1) : 0;
}

static void verify(void)
{
    int listed = 0, last = -1;
    for (struct node *n = head.next; n != &head; n = n->next) {
        if (n->key <= last || n->next->prev != n || !n->present)
            fail("list torn at key %d (after %d)", n->key, last);
        if (*tree_place(n->key) != n)
            fail("key %d is in the list, but not in the tree", n->key);
        last = n->key;
        listed++;
    }
    int in_tree = tree_size(root, 0);
    if (listed != size || in_tree != size)
        fail("%d keys in the list, %d in the tree, %d counted", listed, in_tree, size);
}

static void toggle(struct node *n, struct worker *w)
{
    if (n->present) {
        list_remove(n, w);
        tree_remove(n, w);
        size--;
    } else {
        list_insert(n, w);
        tree_insert(n, w);
        size++;
    }
    n->present = !n->present;
}

static void list_body(struct worker *w)
{
    while (!stopping()) {
        lock(w, &mutex);
        for (uint32_t i = below(w, 3); i > 0; i--)
            toggle(&nodes[below(w, KEYS)], w);
        dither(w);
        if (one_in(w, 16))
            verify();
        unlock(w, &mutex);
        count_op(w);
    }
}

void run_list(struct run *run)
{
    for (int i = 0; i < KEYS; i++)
        nodes[i].key = i;
    crew_run(run, run->threads, list_body, NULL);
    verify();
}
