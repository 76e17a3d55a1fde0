// Sums of the columns of a window that goes down an image without alpha, four columns (a quad) a
// thread.
//
//     row y + radius + 1   enters: its samples s are added
//     …                    2 · radius + 1 rows are in the sums
//     row y - radius       leaves: 255 - s is added
//
// Because the complement is added, one dot product of bytes (__dp4a) does both; every column's sum
// grows by 255 too much for each row that the window went down, and the caller takes that away. A
// thread owns its quad alone; nothing here lies in shared memory.
#pragma once
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"

// Copy an image of less than four columns to its scratch, four columns wide. Every block of the
// image writes the same bytes there, so no block waits for another.
static __device__ __noinline__ void widen_narrow_image(const Item& item)
{
    int c = item.channels;
    u8* to = global<u8>(item.scratch);
    for (u32 i = threadIdx.x; i < 4u * c * item.height; i += THREADS)
        to[i] = source_row(item, i / (4 * c))[min(i % (4 * c) / c, item.width - 1u) * c + i % c];
    __syncthreads();
}

// The place of four pixels in every row of an image of at least four columns. `first` is the byte
// from which a row is loaded; `order` selects, for __byte_perm, which of the loaded pixels are the
// pixels asked for, since those beyond an end replicate.
template <int C> struct QuadPlace {
    int first;
    u32 order;

    __device__ __forceinline__ QuadPlace(int x, int width)
    {
        int pixel = clamped(x, width - 3);
        first = pixel * C, order = 0;
        for (int k = 0; k < 4; ++k) order |= (clamped(x + k, width) - pixel) << 4 * k;
    }

    __device__ __forceinline__ bool within() const { return order == 0x3210; }

    __device__ __forceinline__ void replicate(u32* pixels) const
    {
        u32 plane[C];
        deinterleave<C>(pixels, plane);
        for (int c = 0; c < C; ++c) plane[c] = __byte_perm(plane[c], 0, order);
        interleave<C>(plane, pixels);
    }
};

// Reader of four pixels of one row after another. `load` starts the loads of a row, `pixels` uses
// them, so that a caller can do other work in between. Rows beyond the ends replicate.
template <int C> struct RowReader {
    const u8* at;
    int y;
    u32 shift, words[C + 1];

    __device__ __forceinline__ RowReader(const Item& item, const QuadPlace<C>& quad, int y)
        : at(source_row(item, y) + quad.first),
          y(y)
    {
    }

    __device__ __forceinline__ void load()
    {
        u32 over = (u64)at & 3;
        const u32* from = global<const u32>((u64)at & ~3ull);
        for (int c = 0; c < C; ++c) words[c] = from[c];
        words[C] = over ? from[C] : 0;
        shift = 8 * over;
    }

    __device__ __forceinline__ void step(const Item& item)
    {
        at += (u32)y++ < item.height - 1u ? (u32)(item.width * C) : 0;
    }

    __device__ __forceinline__ void pixels(u32* pixels) const
    {
        for (int c = 0; c < C; ++c) pixels[c] = __funnelshift_r(words[c], words[c + 1], shift);
    }
};

// The running sums of four columns, one for every sample.
template <int C> struct ColumnSums {
    u32 sums[4 * C] = {};

    __device__ __forceinline__ void add(const u32* pixels)
    {
#pragma unroll
        for (int i = 0; i < 4 * C; ++i) sums[i] = __dp4a(pixels[i / 4], 1u << 8 * (i % 4), sums[i]);
    }

    __device__ __forceinline__ void exchange(const u32* fresh, const u32* old)
    {
#pragma unroll
        for (int i = 0; i < 4 * C; ++i) {
            u32 both = __byte_perm(fresh[i / 4], ~old[i / 4], i % 4 < 2 ? 0x5140 : 0x7362);
            sums[i] = __dp4a(both, i % 2 ? 0x01010000u : 0x0101u, sums[i]);
        }
    }
};
