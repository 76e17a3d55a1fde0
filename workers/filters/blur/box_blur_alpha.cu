// Box blur with alpha, of any radius, in one pass by running sums: colours are weighed by their
// alpha,
//
//     alpha = mean(alpha over the square)      colour = sum(colour · alpha) / sum(alpha)
//
// A block goes down a tile of 512 × 128. Thread t keeps sums over 2 · radius + 1 rows of 4 · G
// columns, from tile.x - radius + 4 · G · t on, of all four channels in registers; a row enters,
// one leaves. For every channel, alpha first, prefix sums along the row turn columns into squares:
//
//     |  t0  |  t1  |  t2  | …     prefix[x] is the sum of the columns left of tile.x - radius + x;
//     ^ tile.x - radius            pixel i is prefix[i + 2 · radius + 1] - prefix[i]
//
// `line` holds the row of results until `store_row` writes it by words. box_blur_opaque.cu is for
// images without alpha.
#include "filters/arithmetic/box.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"
#include "kernels/headers/scan.cuh"

constexpr int BOX_WIDTH = 512, BOX_HEIGHT = 128, BOX_COLUMNS = BOX_WIDTH + 1008;

// Add four pixels of a row, premultiplied, to the sums of their columns, or subtract them.
template <bool ADD>
__device__ __forceinline__ void move_sums(const Item& item, int x, int y, u32 (*sums)[4])
{
    u32 plane[4];
    pixels4<4>(source_row(item, y), item.width, x, plane);
#pragma unroll
    for (int c = 0; c < 4; ++c)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            u32 sample = byte_of(plane[c], k);
            if (c < 3) sample *= byte_of(plane[3], k);
            sums[c][k] = ADD ? sums[c][k] + sample : sums[c][k] - sample;
        }
}

// The running sums of 4 · G columns from x on, for every channel.
template <int G> struct Columns {
    u32 sums[G][4][4];

    __device__ __forceinline__ void fill(const Item& item, int x, int y, int radius)
    {
#pragma unroll
        for (int g = 0; g < G; ++g)
#pragma unroll
            for (int c = 0; c < 4; ++c)
#pragma unroll
                for (int k = 0; k < 4; ++k) sums[g][c][k] = 0;
        for (int row = -radius; row <= radius; ++row)
#pragma unroll
            for (int g = 0; g < G; ++g) move_sums<true>(item, x + 4 * g, y + row, sums[g]);
    }

    __device__ __forceinline__ void advance(const Item& item, int x, int y, int radius)
    {
#pragma unroll
        for (int g = 0; g < G; ++g) {
            move_sums<true>(item, x + 4 * g, y + radius, sums[g]);
            move_sums<false>(item, x + 4 * g, y - radius - 1, sums[g]);
        }
    }

    __device__ __forceinline__ u64 total(int c) const
    {
        u64 sum = 0;
#pragma unroll
        for (int g = 0; g < G; ++g)
#pragma unroll
            for (int k = 0; k < 4; ++k) sum += sums[g][c][k];
        return sum;
    }

    // Write the sum before each of the columns; `before` is the sum before the first one.
    __device__ __forceinline__ void prefix(int c, u64 before, u64* to) const
    {
#pragma unroll
        for (int g = 0; g < G; ++g)
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                to[4 * g + k] = before;
                before += sums[g][c][k];
            }
    }
};

__device__ __forceinline__ void store_row(
    const Item& item, const Tile& tile, int row, const u8* from)
{
    i64 pixel = (i64)(tile.y + row) * item.width + tile.x;
    u8* line = global<u8>(item.dst) + pixel * item.channels;
    int bytes = tile.width * item.channels;
    for (int at = 4 * threadIdx.x - (int)((u64)line & 3); at < bytes; at += 4 * THREADS)
        store4(line, from, at, bytes);
}

// Compute a tile, channel after channel. Alpha comes first, because colours are divided by its
// sums.
template <int G>
__device__ __forceinline__ void box_alpha(
    const Item& item, const Tile& tile, u64* prefix, u64* totals, u8* line)
{
    Box box = box_of(item);
    int first = 4 * G * threadIdx.x, x = tile.x - box.radius + first, side = 2 * box.radius + 1;
    bool mine = first <= tile.width + 2 * box.radius;
    Columns<G> columns = {};
    if (mine) columns.fill(item, x, tile.y, box.radius);
    for (int row = 0; row < tile.height; ++row) {
        if (mine && row) columns.advance(item, x, tile.y + row, box.radius);
        u64 weight[BOX_WIDTH / THREADS];
#pragma unroll
        for (int c = 3; c >= 0; --c) {
            u64 own = columns.total(c), upto = scan_warp(own);
            if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = upto;
            __syncthreads();
            if (mine) columns.prefix(c, before_thread(own, upto, totals), prefix + first);
            __syncthreads();
            for (int k = 0; k < BOX_WIDTH / THREADS; ++k) {
                int i = threadIdx.x + k * THREADS;
                if (i >= tile.width) break;
                u64 sum = prefix[i + side] - prefix[i];
                u8* pixel = line + 4 * i;
                if (c == 3) weight[k] = sum, pixel[3] = (u8)mean_of(box, (u32)sum);
                else pixel[c] = pixel[3] ? (u8)quotient(2 * sum + weight[k], 2 * weight[k]) : 0;
            }
        }
        __syncthreads();
        store_row(item, tile, row, line);
    }
}

extern "C" __global__ void __launch_bounds__(256, 3)
    box_blur_alpha(const Item* items, const u32* starts, int n)
{
    __shared__ u64 prefix[BOX_COLUMNS], totals[8];
    __shared__ u32 line[BOX_WIDTH + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, BOX_WIDTH, BOX_HEIGHT);
    if (box_of(item).radius < 256) box_alpha<1>(item, tile, prefix, totals, (u8*)line);
    else box_alpha<2>(item, tile, prefix, totals, (u8*)line);
}
LAUNCHED_BY_TILES(box_blur_alpha, BOX_WIDTH, BOX_HEIGHT);
