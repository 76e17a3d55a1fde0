// The Gaussian, second pass: weighted sums down the columns of what gaussian_rows.cuh left in
// scratch, with weights in Q16.
//
//   64 columns           A tile has 64 × 32 pixels. Thread t owns column t % 64 and R = 8 rows from
//   +---------------+    8 · (t / 64) on, of one plane after the other; where colours are divided
//   | t0  t1  … t63 |    by alpha, 4 rows at a time. Neighbours come from the cache, not from
//   | 8 rows each   |    shared memory, which holds results until whole rows of the tile are
//   +---------------+    written.
#pragma once
#include "filters/separable/gaussian_rows.cuh"
#include "kernels/headers/common.cuh"

constexpr int COLUMNS_WIDTH = 64, COLUMNS_HEIGHT = 32;

// Neighbours in a column of scratch. INSIDE states that all of them lie in the image.
template <bool INSIDE, class Intermediate> struct Down {
    const Intermediate* column;
    int y, height, step;

    template <int N> __device__ __forceinline__ void many(int place, u32* samples) const
    {
#pragma unroll
        for (int j = 0; j < N; ++j) {
            int row = INSIDE ? y + place + j : clamped(y + place + j, height);
            samples[j] = __ldg(column + row * step);
        }
    }
};

// Compute the weighted sums down one column of a plane for R rows from y on.
template <int R, bool INSIDE, class Sum, class Intermediate>
__device__ __forceinline__ void blur_column(
    const Item& item, int planes, int plane, int x, int y, const u32* weights, Sum* sums)
{
    int pitch = pitch_of<Intermediate>(item.width);
    const Intermediate* column = global<const Intermediate>(item.scratch) + plane * pitch + x;
    const Gaussian& of = gaussian_of(item);
    weighted<R>(of.column_centre, weights, of.down, sums,
        Down<INSIDE, Intermediate>{column, y, item.height, planes * pitch});
}

// Return the level of an unsharp mask: `level` plus `amount` (Q16) times its difference to the
// blurred `sum` (units of 2**-24), where that difference is at least `threshold` levels.
__device__ __forceinline__ u32 unsharp(u32 amount, u32 threshold, u32 level, u32 sum)
{
    bool darker = sum > level << 24;
    u32 distance = darker ? sum - (level << 24) : (level << 24) - sum;
    int change = (int)(((u64)distance * amount + (1ull << 39) - darker) >> 40);
    int made = min(max((int)level + (darker ? -change : change), 0), 255);
    return distance < threshold << 24 ? level : (u32)made;
}

template <bool INSIDE, bool UNSHARP>
__device__ __forceinline__ void blur_columns(
    const Item& item, const Tile& tile, const u32* weights, u8* out)
{
    constexpr int R = COLUMNS_WIDTH * COLUMNS_HEIGHT / THREADS;  // rows a thread
    const Gaussian& of = gaussian_of(item);
    int channels = item.channels, planes = min(channels, 3);
    int x = threadIdx.x % COLUMNS_WIDTH, row = threadIdx.x / COLUMNS_WIDTH * R;
#pragma unroll 1
    for (int c = 0; c < channels && x < tile.width && row < tile.height; ++c) {
        u32 sums[R];
        if (c < planes)
            blur_column<R, INSIDE, u32, u16>(
                item, planes, c, tile.x + x, tile.y + row, weights, sums);
#pragma unroll
        for (int o = 0; o < R; ++o) {
            u8* to = out + ((row + o) * COLUMNS_WIDTH + x) * channels + c;
            if (!UNSHARP) {
                *to = (u8)((sums[o] + (1 << 23)) >> 24);
            } else if (row + o < tile.height) {
                u32 level = source_row(item, tile.y + row + o)[(tile.x + x) * channels + c];
                *to = (u8)(c < planes ? unsharp(of.amount, of.threshold, level, sums[o]) : level);
            }
        }
    }
    __syncthreads();
    store_tile_of<COLUMNS_WIDTH>(item, tile, out);
}
