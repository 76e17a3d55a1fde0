// The steps of erosion and dilation, and where their images lie.
#pragma once
#include "kernels/common.cuh"
#include "kernels/lines.cuh"

enum Buffer { SOURCE, RESULT, SCRATCH, SPARE };

struct MorphologyPass {
    int from, to;                 // of `Buffer`; of a difference what is taken from what, to RESULT
    int dilates, before, length;  // of rows and columns: the window of a sample
    int strip;                    // of small rectangles: windows of a row at once
};

// A row of a shape: the least of two windows of 2**level samples, from these places on.
struct Run {
    short level, first, second, reserved;
};

struct Morphology {
    u32 room[4];  // the spare place of an image that is too small for two in its scratch
    int size, above, left, right, levels, reserved[3];  // of the shape, around its anchor
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

// The step of this launch, and its image.
__device__ __forceinline__ MorphologyPass pass_of(const Item& item, Item& moved)
{
    MorphologyPass step = morphology_of(item).steps[item.step];
    moved = item;
    moved.src = buffer_of(item, step.from), moved.dst = buffer_of(item, step.to);
    return step;
}
