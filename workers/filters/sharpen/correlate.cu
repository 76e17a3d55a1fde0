// Correlation with at most 31 × 31 integer weights, in 64-bit sums. A tile with its surroundings
// lies in shared memory, a pixel a word, without alpha. A thread makes four pixels of a row.
#include "filters/arithmetic/recolour.cuh"
#include "kernels/headers/borders.cuh"
#include "kernels/headers/common.cuh"

constexpr int CORRELATE_HEIGHT = 16, MOST_WEIGHTS = 31;
constexpr int CORRELATE_PITCH = CORRELATE_WIDTH + MOST_WEIGHTS;
constexpr int CORRELATE_ROWS = CORRELATE_HEIGHT + MOST_WEIGHTS - 1;

// Integer weights, in units of 2**-bits.
struct Correlate {
    i64 shift;  // added to the sums
    int bits, rows, columns;
    int border;  // one of Border
    int weights[MOST_WEIGHTS * MOST_WEIGHTS];
};

template <int C>
__device__ __forceinline__ void correlate_stage(
    const Item& item, const Tile& tile, int rows, int columns, int border, u32* pixels)
{
    int across = CORRELATE_WIDTH + columns - 1, down = CORRELATE_HEIGHT + rows - 1;
    for (int i = threadIdx.x; i < across * down; i += THREADS) {
        int x = tile.x + i % across - columns / 2, y = tile.y + i / across - rows / 2;
        pixels[i / across * CORRELATE_PITCH + i % across] = bordered_colour<C>(item, x, y, border);
    }
}

// Compute four pixels of the result; `line` points at the first pixel under the weights.
template <int C>
__device__ __forceinline__ void correlate4(
    const Correlate& of, const int* weights, const u32* line, u32* made)
{
    i64 sums[4][C] = {};
    for (int row = 0; row < of.rows; ++row, line += CORRELATE_PITCH, weights += of.columns) {
        int weight[4] = {};
        for (int x = 0; x < of.columns + 3; ++x) {
            weight[3] = weight[2], weight[2] = weight[1], weight[1] = weight[0];
            weight[0] = x < of.columns ? weights[x] : 0;
            u32 pixel = line[x];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (weight[k] == 0) continue;
                for (int c = 0; c < C; ++c) sums[k][c] += (i64)weight[k] * (int)byte_of(pixel, c);
            }
        }
    }
    for (int i = 0; i < 4 * C; ++i) {
        i64 level = (sums[i / C][i % C] + of.shift) >> of.bits;
        made[i] = (u32)min(max(level, 0ll), 255ll);
    }
}

template <int C>
__device__ __forceinline__ void correlate_tile(const Item& item, const Tile& tile,
    const Correlate& of, const int* weights, u32* pixels, u32* out)
{
    constexpr int COLOURS = C == 1 ? 1 : 3;
    correlate_stage<C>(item, tile, of.rows, of.columns, of.border, pixels);
    __syncthreads();
    u32 made[4 * COLOURS];
    int x = threadIdx.x % (CORRELATE_WIDTH / 4) * 4, y = threadIdx.x / (CORRELATE_WIDTH / 4);
    correlate4<COLOURS>(of, weights, pixels + y * CORRELATE_PITCH + x, made);
    recoloured4<C>(item, tile, x, y, made, out);
    __syncthreads();
    store_tile<CORRELATE_WIDTH * C>(item, tile, (const u8*)out);
}

extern "C" __global__ void __launch_bounds__(256)
    correlate(const Item* items, const u32* starts, int n)
{
    __shared__ u32 pixels[CORRELATE_ROWS * CORRELATE_PITCH];
    __shared__ uint4 out[CORRELATE_WIDTH * CORRELATE_HEIGHT / 4 + 1];
    __shared__ int weights[MOST_WEIGHTS * MOST_WEIGHTS];
    int block;
    Item item = find_item(items, starts, n, block);
    const Correlate& of = *global<const Correlate>(item.data);
    Tile tile = tile_of(item, block, CORRELATE_WIDTH, CORRELATE_HEIGHT);
    for (int i = threadIdx.x; i < of.rows * of.columns; i += THREADS) weights[i] = of.weights[i];
    if (item.channels == 1) correlate_tile<1>(item, tile, of, weights, pixels, (u32*)out);
    else if (item.channels == 3) correlate_tile<3>(item, tile, of, weights, pixels, (u32*)out);
    else correlate_tile<4>(item, tile, of, weights, pixels, (u32*)out);
}
LAUNCHED_BY_TILES(correlate, CORRELATE_WIDTH, CORRELATE_HEIGHT);
