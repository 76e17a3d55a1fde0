// Components by union and find: the result does not depend on the order of unions. parents[i]
// belongs to pixel i: 0 means that its component holds a strong edge, NO_EDGE that it is no
// candidate, n + 1 that its parent is pixel n, maybe itself. A root is the smallest number of its
// component, so 0 always wins. Parents lie in shared or in global memory. The algorithm is that of
// D. P. Playne, K. Hawick, "A new algorithm for parallel connected-component labelling on GPUs",
// IEEE TPDS 2018.
#pragma once
#include "kernels/headers/common.cuh"

constexpr u32 NO_EDGE = ~0u;

// Return the root of a parent, as far as it is known, and shorten the way there.
__device__ __forceinline__ u32 find_root(volatile u32* parents, u32 parent)
{
    while (parent) {
        u32 next = parents[parent - 1];
        if (next == parent) break;
        u32 after = next ? parents[next - 1] : 0;
        if (after != next) parents[parent - 1] = after;
        parent = after;
    }
    return parent;
}

// Unite two components. It terminates because the larger root decreases in every iteration.
__device__ __forceinline__ void union_components(u32* parents, u32 a, u32 b)
{
    for (;;) {
        a = find_root(parents, a), b = find_root(parents, b);
        if (a == b) return;
        u32 larger = max(a, b), smaller = min(a, b),
            before = atomicMin(&parents[larger - 1], smaller);
        if (before == larger) return;
        a = before, b = smaller;
    }
}

// Unite a candidate with its neighbours on the left and above; those to the right and below do the
// same from their side. `is(x, y)` tells whether the neighbour is a candidate. Neighbours of each
// other are united already, so the one above stands for all three above and the one on the left,
// and the one on the left for the one above it.
template <class Is, class Join>
__device__ __forceinline__ void union_neighbours(const Is& is, const Join& join)
{
    if (is(0, -1)) return join(0, -1);
    if (is(-1, 0)) join(-1, 0);
    else if (is(-1, -1)) join(-1, -1);
    if (is(1, -1)) join(1, -1);
}
