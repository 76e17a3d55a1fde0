// Samples of any rank in squares of 3 to 9, by bits: the value is found from its highest bit to its
// lowest (radix method: E. Ataman, V. K. Aatre, K. M. Wong, "A fast method for real-time median
// filtering", IEEE Trans. ASSP, 1980). A bit of the result is 1 if at most `rank` samples have a 0
// there; a sample that has left the result's prefix counts in all lower bits as in the bit by which
// it left. The image lies as bit planes, so one word holds that bit of 32 neighbouring samples, and
// carry-save adders count the ones in the square for 32 results at once (H. S. Warren, "Hacker's
// Delight", 5-1).
//
//     planes[row][plane 0 … 7][word]            row r of shared memory is row tile.y + r - radius
//     +------+------+------+-- … --+------+
//     | left |  32 samples a word  | right|     4 · channels words are 128 pixels; one word more on
//     +------+------+------+-- … --+------+     either side holds what windows see beyond the tile
//
// A tile has 128 × 63 pixels. Thread t owns word t % (4 · channels) of row t / (4 · channels) of a
// band of 63, 21 or 16 rows (for 1, 3 or 4 channels): 32 results, and the block takes one band
// after another.
#include "filters/rank/rank.cuh"
#include "kernels/headers/bit_planes.cuh"
#include "kernels/headers/common.cuh"

constexpr int BITSLICED_WIDTH = 128, BITSLICED_HEIGHT = 63,
              BITSLICED_WORDS = 8 * (BITSLICED_WIDTH / 32 * 4 + 2);

// Return, for 32 results, whether N bits and `pad` add up to 2**LEVELS or more; they never reach
// twice that.
template <int LEVELS, int N> __device__ __forceinline__ u32 reaches(const u32* bits, u32 pad)
{
    if constexpr (LEVELS == 0) {
        u32 any = 0;
#pragma unroll
        for (int i = 0; i < N; ++i) any |= bits[i];
        return any;
    } else {
        constexpr int CARRIES = (N + 1) / 2, ALL = N + CARRIES + 3;
        u32 queue[ALL], carry[CARRIES];
#pragma unroll
        for (int i = 0; i < ALL; ++i) queue[i] = i < N ? bits[i] : i == N && pad & 1 ? ~0u : 0;
#pragma unroll
        for (int i = 0; i < CARRIES; ++i) {
            constexpr int BACK = N + 1;
            u32 a = queue[3 * i], b = queue[3 * i + 1];
            u32 c = 3 * i + 2 < BACK + i ? queue[3 * i + 2] : 0;
            queue[BACK + i] = a ^ b ^ c;
            carry[i] = (a & b) | (c & (a | b));
        }
        return reaches<LEVELS - 1, CARRIES>(carry, pad / 2);
    }
}

// Find one bit of 32 results from planes [row][plane][word]. A sample that has left the result's
// prefix stays at the bit by which it left, so it counts as above or below for good. The bit is 1
// if at most `rank` samples have a 0.
template <int SIZE, bool FIRST, bool LAST>
__device__ __forceinline__ u32 ranked_bit(
    const u32* at, int words, int channels, int rank, int plane, u32* gone, u32* bits)
{
    constexpr int R = SIZE / 2, N = SIZE * SIZE,
                  LEVELS = SIZE == 3 ? 4
        : SIZE == 5                  ? 5
        : SIZE == 7                  ? 6
                                     : 7;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const u32* w = at + (i / SIZE * 8 + plane) * words;
        int shift = (i % SIZE - R) * channels;
        u32 here = w[0];
        if (i % SIZE < R) here = __funnelshift_r(w[-1], w[0], 32 + shift);
        if (i % SIZE > R) here = __funnelshift_r(w[0], w[1], shift);
        bits[i] = FIRST ? here : (gone[i] & bits[i]) | (~gone[i] & here);
    }
    u32 made = reaches<LEVELS, N>(bits, (1 << LEVELS) - N + rank);
#pragma unroll
    for (int i = 0; i < N; ++i)
        if (!LAST) gone[i] = FIRST ? bits[i] ^ made : gone[i] | (bits[i] ^ made);
    return made;
}

// Find 32 results, bit by bit from the highest.
template <int SIZE>
__device__ __forceinline__ void ranked_planes(
    const u32* at, int words, int channels, int rank, u32* made)
{
    u32 gone[SIZE * SIZE], bits[SIZE * SIZE];
    u32 high = ranked_bit<SIZE, true, false>(at, words, channels, rank, 7, gone, bits);
#pragma unroll 1
    for (int plane = 6; plane > 0; --plane) {
        u32 bit = ranked_bit<SIZE, false, false>(at, words, channels, rank, plane, gone, bits);
#pragma unroll
        for (int k = 6; k > 1; --k) made[k] = made[k - 1];
        made[1] = bit;
    }
    made[0] = ranked_bit<SIZE, false, true>(at, words, channels, rank, 0, gone, bits);
    made[7] = high;
}

// Stage the rows of the tile as bit planes, with `radius` rows more above and below.
__device__ __forceinline__ void stage_planes(
    const Item& item, const Tile& tile, int radius, u32* planes)
{
    int c = item.channels, bytes = item.width * c, words = BITSLICED_WIDTH / 32 * c + 2;
    for (int i = threadIdx.x; i < (tile.height + 2 * radius) * words; i += THREADS) {
        int row = i / words, word = i % words, at = tile.x * c + 32 * (word - 1);
        if (at > (tile.x + tile.width + radius) * c) continue;
        const u8* line = source_row(item, tile.y + row - radius);
        u32 w[8];
        for (int j = 0; j < 8; j += 4) samples16(line, bytes, c, at + 4 * j, w + j);
        to_planes(w);
        for (int j = 0; j < 8; ++j) planes[(row * 8 + j) * words + word] = w[j];
    }
}

// Make a band of rows. Results go directly to the image where its rows are whole vectors, else to
// `out`.
template <int SIZE>
__device__ __forceinline__ void ranked_band(
    const Item& item, const Tile& tile, int rank, bool straight, const u32* planes, u32* out)
{
    int c = item.channels, words = BITSLICED_WIDTH / 32 * c;
    int row = threadIdx.x / words, word = threadIdx.x % words;
    if (row >= tile.height || 32 * word >= tile.width * c) return;
    u32 made[8] = {};
    ranked_planes<SIZE>(planes + row * 8 * (words + 2) + word + 1, words + 2, c, rank, made);
    to_bytes(made);
    u8* to = (u8*)out + (row * words + word) * 32;
    if (straight)
        to = global<u8>(item.dst) + ((i64)(tile.y + row) * item.width + tile.x) * c + 32 * word;
    store16(to, made);
    if (!straight || 32 * word + 16 < tile.width * c) store16(to + 16, made + 4);
}

// Make a tile, as many rows at a time as there are threads for. A rank that the compiler knows is
// faster.
template <int SIZE>
__device__ __forceinline__ void ranked_tile(
    const Item& item, int block, int rank, u32* planes, u32* out)
{
    Tile tile = tile_of(item, block, BITSLICED_WIDTH, BITSLICED_HEIGHT);
    int c = item.channels, most = c == 1 ? 63 : c == 3 ? 21 : 16;
    bool straight = item.width * c % 16 == 0;
    stage_planes(item, tile, SIZE / 2, planes);
    __syncthreads();
    for (int first = 0; first < tile.height; first += most) {
        Tile band = {tile.x, tile.y + first, tile.width, min(most, tile.height - first)};
        ranked_band<SIZE>(
            item, band, rank, straight, planes + first * 8 * (BITSLICED_WIDTH / 32 * c + 2), out);
        if (straight) continue;
        __syncthreads();
        store_tile_of<BITSLICED_WIDTH>(item, band, (const u8*)out);
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256, 3)
    rank_3(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[(BITSLICED_HEIGHT + 2) * BITSLICED_WORDS];
    __shared__ uint4 out[THREADS * 2 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    ranked_tile<3>(item, block, rank_square_of(item).rank, planes, (u32*)out);
}
LAUNCHED_BY_TILES(rank_3, BITSLICED_WIDTH, BITSLICED_HEIGHT);

extern "C" __global__ void __launch_bounds__(256, 2)
    rank_5(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[(BITSLICED_HEIGHT + 4) * BITSLICED_WORDS];
    __shared__ uint4 out[THREADS * 2 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    ranked_tile<5>(item, block, rank_square_of(item).rank, planes, (u32*)out);
}
LAUNCHED_BY_TILES(rank_5, BITSLICED_WIDTH, BITSLICED_HEIGHT);

extern "C" __global__ void __launch_bounds__(256, 2)
    rank_7(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[(BITSLICED_HEIGHT + 6) * BITSLICED_WORDS];
    __shared__ uint4 out[THREADS * 2 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    ranked_tile<7>(item, block, rank_square_of(item).rank, planes, (u32*)out);
}
LAUNCHED_BY_TILES(rank_7, BITSLICED_WIDTH, BITSLICED_HEIGHT);

extern "C" __global__ void __launch_bounds__(256, 1)
    rank_9(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[(BITSLICED_HEIGHT + 8) * BITSLICED_WORDS];
    __shared__ uint4 out[THREADS * 2 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    ranked_tile<9>(item, block, rank_square_of(item).rank, planes, (u32*)out);
}
LAUNCHED_BY_TILES(rank_9, BITSLICED_WIDTH, BITSLICED_HEIGHT);

extern "C" __global__ void __launch_bounds__(256, 2)
    median_5(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[(BITSLICED_HEIGHT + 4) * BITSLICED_WORDS];
    __shared__ uint4 out[THREADS * 2 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    ranked_tile<5>(item, block, 5 * 5 / 2, planes, (u32*)out);
}
LAUNCHED_BY_TILES(median_5, BITSLICED_WIDTH, BITSLICED_HEIGHT);

extern "C" __global__ void __launch_bounds__(256, 2)
    median_7(const Item* items, const u32* starts, int n)
{
    __shared__ u32 planes[(BITSLICED_HEIGHT + 6) * BITSLICED_WORDS];
    __shared__ uint4 out[THREADS * 2 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    ranked_tile<7>(item, block, 7 * 7 / 2, planes, (u32*)out);
}
LAUNCHED_BY_TILES(median_7, BITSLICED_WIDTH, BITSLICED_HEIGHT);
