// The Gaussian with windows of 25 to 104 samples to either side, without alpha, in two passes on
// the tensor cores: rows with weights in Q24 to 8.8 fixed point in scratch, laid out as in
// gaussian_rows.cuh, then columns with weights in Q16. As in separable.cuh both are products with
// band matrices, byte by byte of the weights, in `steps` of 32 samples; windows
// reach 16 · steps - 8 samples.
//
//     rows:     reach    64 columns    reach         columns:       64 columns
//              +-----+----+----+----+----+-----+            +----+----+----+----+  reach rows
//              |     | u0 | u1 | u2 | u3 |     |  16        |    |    |    |    |
//              |     | u4 | u5 | u6 | u7 |     |  16        | u0 | u1 | u2 | u3 |  16
//              +-----+----+----+----+----+-----+            | u4 | …  |    |    |  16, four times
//                                                           +----+----+----+----+  reach rows
// A unit u of 16 × 16 results is made by warp u % 8; the rows' units go on with the next plane. Row
// pass: shared memory has the rows of all planes, bytes of samples. Column pass, one plane at a
// time: the low and the high bytes of the 8.8 values as two planes, transposed: a line is a column
// of the image, in the order of `row_place`. Lane 4 · g + t owns rows g and g + 8, the four samples
// from 4 · t on.
#include "filters/separable/gaussian_rows.cuh"
#include "filters/separable/gaussian_rule.cuh"
#include "filters/separable/separable.cuh"
#include "kernels/headers/bit_planes.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/mma.cuh"
#include "kernels/headers/pixels.cuh"

constexpr int MMA_WIDTH = 64, MMA_ROWS = 32, MMA_HEIGHT = 64, MMA_STEPS = 7;
// Words of 64 samples and the largest reach at both ends.
constexpr int MMA_PITCH = 8 * MMA_STEPS + 12;

// The steps of a window, how far it reaches in samples, and the words of 64 samples with that reach
// at both ends.
struct MmaSpan {
    int steps, reach, pitch;

    __device__ __forceinline__ explicit MmaSpan(const Item& item)
        : steps(separable_of(item).parameters[2]),
          reach(16 * steps - 8),
          pitch(8 * steps + 12)
    {
    }
};

// Compute 16 × 16 sums along rows of a plane: four samples of row g, then of row g + 8, a lane.
__device__ __forceinline__ void sum_rows_mma(
    const MmaSpan& span, const u32* plane, const uint4* weights, u32 (*sums)[4])
{
    u32 parts[2][3][4] = {};
    for (int step = 0; step < span.steps; ++step, plane += 8) {
        uint4 left = {plane[0], plane[8 * span.pitch], plane[4], plane[8 * span.pitch + 4]};
#pragma unroll
        for (int b = 0; b < 3; ++b) {
            uint4 taps = weights[(3 * step + b) * 32];
            u32 near[2] = {taps.x, taps.z}, far[2] = {taps.y, taps.w};
            multiply_add(left, near, parts[0][b]);
            multiply_add(left, far, parts[1][b]);
        }
    }
    u32 joined[2][4];
    for (int half = 0; half < 2; ++half) join_parts<3>(parts[half], joined[half]);
    for (int i = 0; i < 2; ++i)
        for (int k = 0; k < 4; ++k) sums[i][k] = joined[k / 2][2 * i + k % 2];
}

// Stage planes of the tile with the reach at both ends of its rows. INSIDE states that these lie
// within the image and that words of pixels are aligned words of memory.
template <int C, bool INSIDE>
__device__ __forceinline__ void stage_row_planes(
    const Item& item, const Tile& tile, const MmaSpan& span, u32* planes)
{
#pragma unroll(INSIDE ? 4 : 1)
    for (int i = threadIdx.x; i < tile.height * span.pitch; i += THREADS) {
        int row = i / span.pitch, word = i % span.pitch, x = tile.x + 4 * word - span.reach;
        const u8* line = source_row(item, tile.y + row);
        u32 plane[C], words[C];
        if constexpr (INSIDE) {
            for (int c = 0; c < C; ++c) words[c] = ((const u32*)(line + x * C))[c];
            deinterleave<C>(words, plane);
        } else {
            pixels4<C>(line, item.width, x, plane);
        }
        for (int c = 0; c < C; ++c) planes[(c * MMA_ROWS + row) * span.pitch + word] = plane[c];
    }
}

template <int C>
__device__ __forceinline__ void row_tile_mma(const Item& item, const Tile& tile, u32* planes)
{
    MmaSpan span(item);
    bool within = tile.x >= span.reach && tile.x + MMA_WIDTH + span.reach <= item.width;
    if (within && item.width * C % 4 == 0) stage_row_planes<C, true>(item, tile, span, planes);
    else stage_row_planes<C, false>(item, tile, span, planes);
    __syncthreads();
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint4* weights = separable_of(item).weights + threadIdx.x % 32;
    for (int unit = threadIdx.x / 32; unit < 8 * C; unit += 8) {
        int x = unit % 4 * 16, y = unit / 4 % 2 * 16, c = unit / 8;
        u32 sums[2][4];
        sum_rows_mma(span, planes + (c * MMA_ROWS + y + g) * span.pitch + x / 4 + t, weights, sums);
        for (int i = 0; i < 2; ++i) {
            int row = y + 8 * i + g;
            if (row < tile.height)
                store_intermediates<4, u16, 16>(
                    item, tile, (tile.y + row) * C + c, x + 4 * t, sums[i]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 4)
    gaussian_rows_mma(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[3 * MMA_ROWS * MMA_PITCH];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, MMA_WIDTH, MMA_ROWS);
    if (item.channels == 1) row_tile_mma<1>(item, tile, planes);
    else row_tile_mma<3>(item, tile, planes);
}
LAUNCHED_BY_TILES(gaussian_rows_mma, MMA_WIDTH, MMA_ROWS);

// Load four 16-bit values of a plane of scratch, two a word.
__device__ __forceinline__ void intermediates4(const Item& item, int y, int plane, int x, u32* two)
{
    int pitch = pitch_of<u16>(item.width);
    i64 line = (i64)clamped(y, item.height) * item.channels + plane;
    const u16* from = global<const u16>(item.scratch) + line * pitch + x;
    if (pitch % 4 == 0) {
        uint2 four = *(const uint2*)from;
        two[0] = four.x, two[1] = four.y;
    } else {
        for (int k = 0; k < 2; ++k)
            two[k] = from[min(2 * k, pitch - 1)] | (u32)from[min(2 * k + 1, pitch - 1)] << 16;
    }
}

// Stage a plane of scratch as two planes of bytes, transposed: columns become lines, in the order
// that the weights of rows have.
__device__ __forceinline__ void stage_intermediates(
    const Item& item, const Tile& tile, const MmaSpan& span, int plane, u32* middle)
{
    int groups = (tile.height + 2 * span.reach + 3) / 4;
    for (int i = threadIdx.x; i < groups * 16; i += THREADS) {
        int x = i % 16 * 4, y = i / 16 * 4;
        if (x >= tile.width) continue;
        u32 low[4], high[4], two[2];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            intermediates4(item, tile.y + y + k - span.reach, plane, tile.x + x, two);
            low[k] = __byte_perm(two[0], two[1], 0x6420),
            high[k] = __byte_perm(two[0], two[1], 0x7531);
        }
        transpose_bytes(low[0], low[1], low[2], low[3]);
        transpose_bytes(high[0], high[1], high[2], high[3]);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            u32* to = middle + row_place(x + k) * span.pitch + y / 4;
            to[0] = low[k], to[MMA_WIDTH * MMA_PITCH] = high[k];
        }
    }
}

// Compute 16 × 16 sums down columns, laid out as those of rows.
__device__ __forceinline__ void sum_columns_mma(
    const MmaSpan& span, const u32* middle, const uint4* weights, u32 (*sums)[4])
{
    u32 parts[2][3][4] = {};
    for (int step = 0; step < span.steps; ++step, middle += 8)
#pragma unroll
        for (int b = 0; b < 2; ++b) {
            uint4 left = weights[(2 * step + b) * 32];
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int byte = 0; byte < 2; ++byte) {
                    const u32* from = middle + byte * MMA_WIDTH * MMA_PITCH + 8 * half * span.pitch;
                    u32 right[2] = {from[0], from[4]};
                    multiply_add(left, right, parts[half][b + byte]);
                }
        }
    u32 joined[2][4];
    for (int half = 0; half < 2; ++half) join_parts<3>(parts[half], joined[half]);
    for (int i = 0; i < 2; ++i)
        for (int k = 0; k < 4; ++k) sums[i][k] = joined[k / 2][2 * i + k % 2] + (1 << 23);
}

template <int C>
__device__ __forceinline__ void column_tile_mma(
    const Item& item, const Tile& tile, u32* middle, u32* made)
{
    MmaSpan span(item);
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint4* weights = separable_of(item).weights + 96 * span.steps + threadIdx.x % 32;
#pragma unroll 1
    for (int c = 0; c < C; ++c) {
        __syncthreads();
        stage_intermediates(item, tile, span, c, middle);
        __syncthreads();
        for (int unit = threadIdx.x / 32; unit < 16; unit += 8) {
            int x = unit % 4 * 16, y = unit / 4 * 16;
            u32 sums[2][4];
            sum_columns_mma(span, middle + (x + g) * span.pitch + y / 4 + t, weights, sums);
            for (int i = 0; i < 2; ++i)
                made[(c * MMA_HEIGHT + y + 8 * i + g) * 16 + x / 4 + t] = Blurred()(sums[i], 0);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < MMA_HEIGHT * 16; i += THREADS) {
        u32 words[C];
        for (int c = 0; c < C; ++c) words[c] = made[c * MMA_HEIGHT * 16 + i];
        interleave<C>(words, middle + i * C);
    }
    __syncthreads();
    store_tile<MMA_WIDTH * C>(item, tile, (const u8*)middle);
}

extern "C" __global__ void __launch_bounds__(256, 4)
    gaussian_columns_mma(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 middle[2 * MMA_WIDTH * MMA_PITCH / 4];
    __shared__ u32 made[3 * MMA_HEIGHT * 16];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, MMA_WIDTH, MMA_HEIGHT);
    if (item.channels == 1) column_tile_mma<1>(item, tile, (u32*)middle, made);
    else column_tile_mma<3>(item, tile, (u32*)middle, made);
}
LAUNCHED_BY_TILES(gaussian_columns_mma, MMA_WIDTH, MMA_HEIGHT);
