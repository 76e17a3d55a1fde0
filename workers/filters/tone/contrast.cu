// Contrast around the mean luma: one pass sums the lumas in integers, whose order does not matter,
// the other maps all samples by a table.
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"
#include "kernels/headers/luma.cuh"

struct Contrast {
    u64 sum;  // sum of all lumas; uploaded as 0
    float factor;
};

// Return the sum of the lumas of this thread's 48 bytes.
template <int C> __device__ __forceinline__ u32 line_lumas(const Item& item, int block)
{
    u32 total = samples_of(item), at = block * LINE + 48 * threadIdx.x, sum = 0;
    const u8* src = global<const u8>(item.src);
    if (at + 48 <= total) {
        u32 words[12];
        for (int i = 0; i < 3; ++i) load16(src + at + 16 * i, words + 4 * i);
        for (int i = 0; i < 12; i += C) sum = __dp4a(lumas4<C>(words + i), 0x01010101u, sum);
        return sum;
    }
    for (; at < total; at += C)
        sum += C == 1 ? src[at] : luma(src[at], src[at + (C > 1)], src[at + (C > 1 ? 2 : 0)]);
    return sum;
}

extern "C" __global__ void __launch_bounds__(256)
    luma_sum(const Item* items, const u32* starts, int n)
{
    __shared__ u32 total;
    int block;
    Item item = find_item(items, starts, n, block);
    if (threadIdx.x == 0) total = 0;
    u32 sum = item.channels == 1 ? line_lumas<1>(item, block)
        : item.channels == 3     ? line_lumas<3>(item, block)
                                 : line_lumas<4>(item, block);
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) atomicAdd(&total, sum);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&global<Contrast>(item.data)->sum, (u64)total);
}
LAUNCHED_BY_LINES(luma_sum, LINE);

extern "C" __global__ void __launch_bounds__(256)
    contrast(const Item* items, const u32* starts, int n)
{
    __shared__ u8 table[256];
    int block;
    Item item = find_item(items, starts, n, block);
    const Contrast* of = global<const Contrast>(item.data);
    u64 pixels = (u64)item.width * item.height;
    u32 mean = (u32)((2 * of->sum + pixels) / (2 * pixels));
    table[threadIdx.x] = (u8)blend(as_float(mean), as_float(threadIdx.x), of->factor);
    __syncthreads();
    map_samples(item, block, table);
}
LAUNCHED_BY_LINES(contrast, LINE);
