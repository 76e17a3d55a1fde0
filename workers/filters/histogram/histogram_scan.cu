// Histograms of the image's levels or lumas, counted in integers, whose order does not matter.
#include "filters/histogram/histogram.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"

constexpr u32 HISTOGRAM_LINE = 8 * LINE;  // samples a block

template <int C, bool LUMA>
__device__ __forceinline__ void count_pixel(const u32* colour, const SharedHistogram& counters)
{
    if constexpr (LUMA && C > 1) {
        counters(0, luma(colour[0], colour[1], colour[2]));
    } else {
        for (int c = 0; c < min(C, 3); ++c) counters(c, colour[c]);
    }
}

template <int C, bool LUMA>
__device__ __forceinline__ void count_line(
    const Item& item, int block, const SharedHistogram& counters)
{
    u32 total = samples_of(item), end = min(total, (block + 1) * HISTOGRAM_LINE);
    const u8* src = global<const u8>(item.src);
    for (u32 at = block * HISTOGRAM_LINE + 48 * threadIdx.x; at < end; at += LINE) {
        if (at + 48 <= total) {
            u32 words[12], colour[C];
            for (int i = 0; i < 3; ++i) load16(src + at + 16 * i, words + 4 * i);
#pragma unroll
            for (int p = 0; p < 48; p += C) {
                for (int c = 0; c < C; ++c) colour[c] = byte_of(words[(p + c) / 4], (p + c) % 4);
                count_pixel<C, LUMA>(colour, counters);
            }
        } else {
            for (u32 s = at; s < total; s += C) {
                u32 colour[C];
                for (int c = 0; c < C; ++c) colour[c] = src[s + c];
                count_pixel<C, LUMA>(colour, counters);
            }
        }
    }
}

template <bool LUMA>
__device__ __forceinline__ void count_block(const Item& item, int block, uint4* bins)
{
    int levels = LUMA || item.channels == 1 ? 256 : 768;
    SharedHistogram counters = {(u32*)bins};
    counters.clear(levels);
    __syncthreads();
    if (item.channels == 1) count_line<1, LUMA>(item, block, counters);
    else if (item.channels == 3) count_line<3, LUMA>(item, block, counters);
    else count_line<4, LUMA>(item, block, counters);
    __syncthreads();
    u32* counts = global<HistogramData>(item.data)->counts[0];
    for (int i = threadIdx.x; i < levels; i += THREADS) {
        u32 count = counters.total(i);
        if (count) atomicAdd(&counts[i], count);
    }
}

// Count the levels of every colour separately.
extern "C" __global__ void __launch_bounds__(256)
    histogram_levels(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 bins[768 * 2];
    int block;
    Item item = find_item(items, starts, n, block);
    count_block<false>(item, block, bins);
}
LAUNCHED_BY_LINES(histogram_levels, HISTOGRAM_LINE);

extern "C" __global__ void __launch_bounds__(256)
    histogram_lumas(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 bins[256 * 2];
    int block;
    Item item = find_item(items, starts, n, block);
    count_block<true>(item, block, bins);
}
LAUNCHED_BY_LINES(histogram_lumas, HISTOGRAM_LINE);
