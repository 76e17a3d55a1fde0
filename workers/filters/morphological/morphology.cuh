// The passes of erosion and dilation, and where their images lie.
#pragma once
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"

enum Buffer { SOURCE, RESULT, SCRATCH, SPARE };

struct MorphologyPass {
    int from, to;  // of `Buffer`; a difference is `from` less `to`, in RESULT
    // Of rows and columns: samples before the window's own, and its length.
    int dilates, before, length;
    int strip;  // of small rectangles: windows of a row that a thread makes together
};

// A row of a shape: the minimum of two windows of 2**level samples, which begin at these places.
struct Run {
    short level, first, second, reserved;
};

struct Morphology {
    u32 spare[4];  // the buffer SPARE of an image that is too small for two in its scratch
    int size, above, left, right, levels, reserved[3];  // extent of the shape around its anchor
    MorphologyPass steps[34];
    Run runs[1];
};

__device__ __forceinline__ u64 buffer_of(const Item& item, int place)
{
    if (place == SOURCE) return item.src;
    if (place == RESULT) return item.dst;
    u32 samples = samples_of(item);
    if (place == SCRATCH) return item.scratch;
    return samples < 8 ? item.data : item.scratch + ((samples + 15) & ~15u);
}

__device__ __forceinline__ const Morphology& morphology_of(const Item& item)
{
    return *global<const Morphology>(item.data);
}

// Return the pass of this launch; `moved` becomes the image that it works on.
__device__ __forceinline__ MorphologyPass pass_of(const Item& item, Item& moved)
{
    MorphologyPass step = morphology_of(item).steps[item.step];
    moved = item;
    moved.src = buffer_of(item, step.from), moved.dst = buffer_of(item, step.to);
    return step;
}
