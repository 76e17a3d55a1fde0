// Non-local means: A. Buades, B. Coll, J.-M. Morel, "A non-local algorithm for image denoising",
// CVPR 2005, in integers:
//
//     out(p) = sum of w(d(p, q)) · I(q) / sum of w(d(p, q))
//
// for all q at most `far` away along either axis; d is the sum of squared differences over a patch
// that reaches `near` around p and around q; w comes from a table of the host, by d >> shift. For
// each of the (2 · far + 1)² displacements q - p the squared differences of all pixels are summed
// along rows, then down columns, by running sums, so that a patch of any size costs as much as a
// pixel (J. Darbon et al., "Fast nonlocal filtering applied to electron cryomicroscopy", ISBI
// 2008).
//
//   near + far      64 pixels      near + far
//   +-----------------------------------+
//   |         mirrored surroundings     |    A block makes 64 × 32 pixels. `pixels` holds the tile
//   |       +-------------------+       |    and its surroundings, a pixel a word, without alpha.
//   |       | thread t:         |       |    First step: threads share out the rows of the tile
//   |       | column t % 64,    |       |    and `near` rows above and below; `along[row][x]` is
//   |       | rows t / 64 · 8   |       |    the sum over the 2 · near + 1 pixels of a patch's row.
//   |       | … + 7             |       |    Second step: thread t adds 2 · near + 1 of these for
//   |       +-------------------+       |    its 8 pixels of a column, from the top down.
//   +-----------------------------------+
#include "kernels/headers/borders.cuh"
#include "kernels/headers/common.cuh"

// The head of the data. Behind it lie the weights in units of 2**-14, by sums of squares shifted
// right, two a word; the last weight is 0.
struct PatchDistances {
    int near, far;    // how far a patch reaches, and how far away patches are compared
    int shift, last;  // shift of a sum of squares; index of the last weight
};

constexpr int PATCH_WIDTH = 64, PATCH_HEIGHT = 32, MOST_NEAR = 7, MOST_FAR = 10;
constexpr int PATCH_PIXELS = PATCH_WIDTH * PATCH_HEIGHT / THREADS;  // pixels of a column a thread
// The pitch is odd, so that lanes in a column meet different banks.
constexpr int PATCH_PITCH = PATCH_WIDTH + 2 * (MOST_NEAR + MOST_FAR) + 1;
constexpr int PATCH_ROWS = PATCH_HEIGHT + 2 * (MOST_NEAR + MOST_FAR);
constexpr int ALONG_PITCH = PATCH_WIDTH + 1, ALONG_ROWS = PATCH_HEIGHT + 2 * MOST_NEAR;

struct PatchShared {
    u32 pixels[PATCH_ROWS * PATCH_PITCH];  // the tile and its surroundings, later the result
    u32 along[ALONG_ROWS * ALONG_PITCH];   // sums of squared differences along rows
    u32 weights[1 << 11 | 1];              // two a word
};

__device__ __forceinline__ u32 squared_distance(u32 one, u32 other)
{
    u32 away = __vabsdiffu4(one, other);
    return __dp4a(away, away, 0u);
}

// A thread's part of a row. All threads get about the same number of pixels.
struct Piece {
    int row, first, end;

    __device__ __forceinline__ Piece(const Tile& tile, int near)
    {
        int rows = tile.height + 2 * near, pieces = THREADS / rows;
        int length = (tile.width + pieces - 1) / pieces;
        row = threadIdx.x % rows, first = threadIdx.x / rows * length;
        end = min(first + length, tile.width);
    }

    // Sum 2 · near + 1 squared differences for each pixel of the part; `away` is the displacement
    // in words.
    __device__ __forceinline__ void sum(
        const PatchDistances& of, int away, PatchShared& shared) const
    {
        if (first >= end) return;
        const u32* one = shared.pixels + (row + of.far) * PATCH_PITCH + of.far;
        const u32* other = one + away;
        u32 sum = 0;
        for (int x = first; x < first + 2 * of.near; ++x) sum += squared_distance(one[x], other[x]);
        for (int x = first; x < end; ++x) {
            sum += squared_distance(one[x + 2 * of.near], other[x + 2 * of.near]);
            shared.along[row * ALONG_PITCH + x] = sum;
            sum -= squared_distance(one[x], other[x]);
        }
    }
};

// The sums of PATCH_PIXELS pixels of a column: weights, and weighted colours.
template <int C> struct WeightedMean {
    u32 totals[PATCH_PIXELS] = {}, sums[PATCH_PIXELS][C] = {};

    // Add one displacement: `along` points at the sums along rows, `neighbours` at the displaced
    // pixels.
    __device__ __forceinline__ void add(
        const PatchDistances& of, const u32* along, const u32* neighbours, const u16* weights)
    {
        u32 sum = 0;
        for (int k = 0; k < 2 * of.near; ++k) sum += along[k * ALONG_PITCH];
#pragma unroll
        for (int k = 0; k < PATCH_PIXELS; ++k) {
            sum += along[(k + 2 * of.near) * ALONG_PITCH];
            u32 weight = weights[min(sum >> of.shift, (u32)of.last)],
                pixel = neighbours[k * PATCH_PITCH];
            sum -= along[k * ALONG_PITCH];
            totals[k] += weight;
            sums[k][0] = __dp2a_lo(weight, pixel, sums[k][0]);
            if constexpr (C == 3) {
                sums[k][1] = __dp2a_lo(weight << 16, pixel, sums[k][1]);
                sums[k][2] = __dp2a_hi(weight, pixel, sums[k][2]);
            }
        }
    }

    __device__ __forceinline__ u8 level(int k, int c) const
    {
        return (u8)quotient(2 * sums[k][c] + totals[k], 2 * totals[k]);
    }
};

template <int C>
__device__ __forceinline__ void stage_patches(
    const Item& item, const Tile& tile, const PatchDistances& of, PatchShared& shared)
{
    int margin = of.near + of.far, across = tile.width + 2 * margin,
        down = tile.height + 2 * margin;
    for (int i = threadIdx.x; i < across * down; i += THREADS) {
        int x = i % across, y = i / across;
        shared.pixels[y * PATCH_PITCH + x] =
            bordered_colour<C>(item, tile.x + x - margin, tile.y + y - margin, MIRROR);
    }
    const u32* weights = global<const u32>(item.data + sizeof(PatchDistances));
    for (int i = threadIdx.x; i <= of.last / 2; i += THREADS) shared.weights[i] = weights[i];
}

template <int C>
__device__ __forceinline__ void nl_means_tile(
    const Item& item, const Tile& tile, PatchShared& shared)
{
    constexpr int COLOURS = C == 1 ? 1 : 3;
    const PatchDistances of = *global<const PatchDistances>(item.data);
    stage_patches<C>(item, tile, of, shared);
    int x = threadIdx.x % PATCH_WIDTH, y = threadIdx.x / PATCH_WIDTH * PATCH_PIXELS;
    int margin = of.near + of.far;
    bool mine = x < tile.width && y < tile.height;
    const u32* own = shared.pixels + (y + margin) * PATCH_PITCH + x + margin;
    Piece piece(tile, of.near);
    WeightedMean<COLOURS> mean;
    for (int down = -of.far; down <= of.far; ++down)
        for (int right = -of.far; right <= of.far; ++right) {
            int away = down * PATCH_PITCH + right;
            __syncthreads();
            piece.sum(of, away, shared);
            __syncthreads();
            const u32* along = shared.along + y * ALONG_PITCH + x;
            if (mine) mean.add(of, along, own + away, (const u16*)shared.weights);
        }
    __syncthreads();
    u8* out = (u8*)shared.pixels + (y * PATCH_WIDTH + x) * C;
#pragma unroll
    for (int k = 0; k < PATCH_PIXELS; ++k, out += PATCH_WIDTH * C) {
        if (!mine || k >= tile.height - y) continue;
        for (int c = 0; c < COLOURS; ++c) out[c] = mean.level(k, c);
        if constexpr (C == 4) out[3] = source_row(item, tile.y + y + k)[(tile.x + x) * C + 3];
    }
    __syncthreads();
    store_tile<PATCH_WIDTH * C>(item, tile, (const u8*)shared.pixels);
}

extern "C" __global__ void __launch_bounds__(256, 3)
    nl_means(const Item* items, const u32* starts, int n)
{
    __shared__ __align__(16) PatchShared shared;
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, PATCH_WIDTH, PATCH_HEIGHT);
    if (item.channels == 1) nl_means_tile<1>(item, tile, shared);
    else if (item.channels == 3) nl_means_tile<3>(item, tile, shared);
    else nl_means_tile<4>(item, tile, shared);
}
LAUNCHED_BY_TILES(nl_means, PATCH_WIDTH, PATCH_HEIGHT);
