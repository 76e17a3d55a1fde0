// Samples of any rank in squares of 11 to 101, one channel after the other. The sample of rank
// `rank` reaches a level if at least size² - rank samples of its square do, so its bits are found
// from the highest to the lowest, like the digits of a binary search (E. Ataman, V. K. Aatre, K. M.
// Wong, "A fast method for real-time median filtering", IEEE Trans. ASSP, 1980). A warp walks the
// tree of prefixes and visits only those that some of its results have. rank_band_counts.cuh
// counts, on the tensor cores.
//
//    128 pixels                  A block of 8 warps makes 128 × 128 pixels (128 × 64 for squares of
//    +-----------+-----------+   67 and more: there only warps 0 to 3 have results). A warp owns
//    |  warp 0   |  warp 1   |   64 × 32 of them, 64 a lane: result i of lane 4 · g + t lies in
//    +-----------+-----------+   `result_row(i)`, `result_column(i)`, where the products leave it.
//    |  warp 2   |  warp 3   |
//    +-----------+-----------+   Shared memory: word [four][x] holds 4 samples of one column: rows
//    |  warp 4   |  warp 5   |   tile.y - size / 2 + 4 · four … + 3, column tile.x - size / 2 + x.
//    +-----------+-----------+
//    |  warp 6   |  warp 7   |   Samples count as their distance above a base, cut to 0 … 128, so
//    +-----------+-----------+   there are up to three rounds: with a base near a guess, then with
//                                0 for results at the base or below, then with 127 for those above.
#include "filters/rank/rank.cuh"
#include "filters/rank/rank_band_counts.cuh"
#include "kernels/headers/bit_planes.cuh"
#include "kernels/headers/common.cuh"

// Find the bits of the results in `sought`, 64 a lane: two words for each of eight planes. Results
// are below 128, or at most 128 where the first `bit` is 7.
template <class D>
__device__ __forceinline__ void search_bits(
    const u32* at, const Bands<D>& bands, int bit, const u32* sought, u32 (*planes)[2])
{
    u32 inside[2] = {sought[0], sought[1]}, upper[8][2], under[2];
    for (int prefix = 0; prefix < 128;) {
        PendingGroups wanted(inside);
        if (wanted.any()) {
            results_below(at, prefix | 1 << bit, bands, wanted, under);
            for (int i = 0; i < 2; ++i) {
                upper[bit][i] = inside[i] & ~under[i];
                planes[bit][i] |= inside[i] & ~under[i];
                inside[i] &= under[i];
            }
            if (bit-- > 0) continue;
            bit = 0;
        }
        prefix += 2 << bit;
        int last = __ffs(prefix) - 1;
        for (int i = 0; i < 2; ++i) inside[i] = upper[last][i];
        bit = last - 1;
    }
}

// Return how far a sample lies above the base, 0 to 128.
__device__ __forceinline__ u32 above(int sample, int base)
{
    return min(max(sample - base, 0), 128);
}

// Stage channel `c` of the tile and its surroundings: a word of four rows for each column.
template <class D>
__device__ __forceinline__ void stage_fours(
    const Item& item, const Tile& tile, int c, int size, int base, u32* fours)
{
    constexpr int EACH = D::COLUMNS / 32;
    int columns = tile.width + size - 1, rows = tile.height + size - 1, lane = threadIdx.x % 32;
    for (int four = threadIdx.x / 32; 4 * four < rows; four += THREADS / 32) {
        u32 samples[EACH + 1][4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const u8* line = source_row(item, tile.y - size / 2 + 4 * four + k) + c;
#pragma unroll
            for (int i = 0; i < EACH + (D::COLUMNS % 32 > 0); ++i)
                if (lane + 32 * i < columns)
                    samples[i][k] = line[clamped(tile.x - size / 2 + lane + 32 * i, item.width) *
                        item.channels];
        }
#pragma unroll
        for (int i = 0; i < EACH + (D::COLUMNS % 32 > 0); ++i) {
            u32* s = samples[i];
            if (lane + 32 * i < columns)
                fours[four * D::PITCH + lane + 32 * i] = packed(
                    above(s[0], base), above(s[1], base), above(s[2], base), above(s[3], base));
        }
    }
}

// The row and the column of a lane's result `i` of 64 within the warp's 64 × 32.
__device__ __forceinline__ int result_row(int i)
{
    return i / 8 % 2 * 16 + i / 2 % 2 * 8 + threadIdx.x % 32 / 4;
}
__device__ __forceinline__ int result_column(int i)
{
    return i / 16 * 16 + i / 4 % 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
}

// Return a guess at the results of a tile: the sample of the same relative rank among 256 of the
// tile.
__device__ __forceinline__ int guess_level(
    const Item& item, const Tile& tile, int c, int size, int rank)
{
    int x = tile.x + threadIdx.x % 16 * tile.width / 16,
        y = tile.y + threadIdx.x / 16 * tile.height / 16;
    int own = source_row(item, y)[x * item.channels + c], made = 0;
    for (int bit = 128; bit > 0; bit /= 2)
        if (__syncthreads_count(own < made + bit) <= rank * THREADS / (size * size)) made += bit;
    return made;
}

// Store the results in `chosen`, 64 a lane, to the image.
__device__ __forceinline__ void store_bits(
    const Item& item, const Tile& tile, int c, int base, const u32* chosen, const u32 (*planes)[2])
{
    i64 stride = (i64)item.width * item.channels;
    u8* dst = global<u8>(item.dst) + tile.y * stride + tile.x * item.channels + c;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        u32 bytes[8];
        for (int k = 0; k < 8; ++k) bytes[k] = planes[k][half];
        to_bytes(bytes);
#pragma unroll
        for (int i = 0; i < 32; ++i)
            if (chosen[half] >> (31 - i) & 1)
                dst[result_row(i) * stride + result_column(32 * half + i) * item.channels] =
                    base + byte_of(bytes[(31 - i) / 4], (31 - i) % 4);
    }
}

// Compute channel `c` of a tile. A round tells 128 levels above a base apart: first a base near the
// guess, then 0 for results at the base or below, then 127, where there is one more level, for
// those above.
template <class D>
__device__ __forceinline__ void search_plane(
    const Item& item, const Tile& tile, int c, const Bands<D>& bands, const u32* there, u32* fours)
{
    auto [size, rank] = rank_square_of(item);
    int warp = threadIdx.x / 32, left = warp % 2 * 64, top = warp / 2 * 32;
    const u32* at = fours + (top / 4 + threadIdx.x % 4) * D::PITCH + left + threadIdx.x % 32 / 4;
    Tile own = {tile.x + left, tile.y + top, 64, 32};
    int base = clamped(guess_level(item, tile, c, size, rank) - 64, 128);
    u32 sought[2] = {there[0], there[1]}, over[2] = {};
#pragma unroll 1
    for (int round = 0; round < 3; ++round) {
        u32 planes[8][2] = {}, under[2] = {};
        if (__syncthreads_or((sought[0] | sought[1]) != 0)) {
            stage_fours<D>(item, tile, c, size, base, fours);
            __syncthreads();
            search_bits<D>(at, bands, base == 127 ? 7 : 6, sought, planes);
            for (int i = 0; i < 2 && round == 0; ++i) {
                u32 any = 0, all = ~0u;
                for (int k = 0; k < 7; ++k) any |= planes[k][i], all &= planes[k][i];
                if (base > 0) under[i] = sought[i] & ~(any | planes[7][i]);
                if (base < 127) over[i] = sought[i] & all;
                sought[i] &= ~(under[i] | over[i]);
            }
            store_bits(item, own, c, base, sought, planes);
        }
        base = round == 0 ? 0 : 127;
        for (int i = 0; i < 2; ++i) sought[i] = round == 0 ? under[i] : over[i];
    }
}

template <class D>
__device__ __forceinline__ void search_tile(const Item& item, int block, u32* fours)
{
    Tile tile = tile_of(item, block, SEARCH_WIDTH, D::HEIGHT);
    int warp = threadIdx.x / 32, left = warp % 2 * 64, top = warp / 2 * 32;
    auto [size, rank] = rank_square_of(item);
    Bands<D> bands(size, size * size - rank);
    u32 there[2] = {};
#pragma unroll
    for (int i = 0; i < 64; ++i)
        if (top + result_row(i) < tile.height && left + result_column(i) < tile.width)
            there[i / 32] |= 1u << (31 - i % 32);
    for (int c = 0; c < item.channels; ++c) search_plane<D>(item, tile, c, bands, there, fours);
}

constexpr int SEARCH_HEIGHT = 128, SEARCH_HEIGHT_101 = 64;  // pixels; lower for the largest windows

using RankWindow17 = RankWindow<2, SEARCH_HEIGHT>;
using RankWindow33 = RankWindow<3, SEARCH_HEIGHT>;
using RankWindow65 = RankWindow<5, SEARCH_HEIGHT>;
using RankWindow101 = RankWindow<8, SEARCH_HEIGHT_101>;

extern "C" __global__ void __launch_bounds__(256, 3)
    rank_17(const Item* items, const u32* starts, int n)
{
    __shared__ u32 fours[RankWindow17::WORDS];
    int block;
    Item item = find_item(items, starts, n, block);
    search_tile<RankWindow17>(item, block, fours);
}
LAUNCHED_BY_TILES(rank_17, SEARCH_WIDTH, SEARCH_HEIGHT);

extern "C" __global__ void __launch_bounds__(256, 3)
    rank_33(const Item* items, const u32* starts, int n)
{
    __shared__ u32 fours[RankWindow33::WORDS];
    int block;
    Item item = find_item(items, starts, n, block);
    search_tile<RankWindow33>(item, block, fours);
}
LAUNCHED_BY_TILES(rank_33, SEARCH_WIDTH, SEARCH_HEIGHT);

extern "C" __global__ void __launch_bounds__(256, 3)
    rank_65(const Item* items, const u32* starts, int n)
{
    __shared__ u32 fours[RankWindow65::WORDS];
    int block;
    Item item = find_item(items, starts, n, block);
    search_tile<RankWindow65>(item, block, fours);
}
LAUNCHED_BY_TILES(rank_65, SEARCH_WIDTH, SEARCH_HEIGHT);

extern "C" __global__ void __launch_bounds__(256, 3)
    rank_101(const Item* items, const u32* starts, int n)
{
    __shared__ u32 fours[RankWindow101::WORDS];
    int block;
    Item item = find_item(items, starts, n, block);
    search_tile<RankWindow101>(item, block, fours);
}
LAUNCHED_BY_TILES(rank_101, SEARCH_WIDTH, SEARCH_HEIGHT_101);
