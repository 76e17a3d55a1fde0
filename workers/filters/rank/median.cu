// Medians of squares of 3, by comparisons of pairs: three samples side by side are sorted first;
// the median of nine is the median of the largest low, the middle middle and the smallest high of
// the three rows (J. L. Smith, "Implementing median filters in XC4000E FPGAs", Xcell 23, 1996).
// Sorted rows are used for all results that see them. rank_bitsliced.cu has squares of 5 to 9,
// rank_bitwise_search_mma.cu the larger ones.
//
//    +--- 128 pixels ---+        A thread makes MEDIAN_ROWS = 4 rows of one word (4 samples; of two
//    | w0 | w1 | …      |  4     words where rows are whole vectors). Two samples share a register,
//    |    |    |        |  rows  each in the high byte of a half, so that a minimum or maximum of
//    +------------------+        halves is one of both samples.
//
// Where rows of the image are whole vectors of 16 bytes, words come from the image and results go
// there directly; else the tile and a border of one row and 16 bytes lie in shared memory
// (staging.cuh).
#include "kernels/headers/common.cuh"
#include "kernels/headers/staging.cuh"

// The low, middle and high of a sample and both its neighbours. Two samples share a word, in the
// high byte of each half; the low bytes cannot change their order.
struct Sorted {
    u32 low, middle, high;
};

__device__ __forceinline__ u32 middle_of(u32 a, u32 b, u32 c)
{
    return a + b + c - __vminu2(__vminu2(a, b), c) - __vmaxu2(__vmaxu2(a, b), c);
}

__device__ __forceinline__ Sorted sorted(u32 a, u32 b, u32 c)
{
    u32 low = __vminu2(__vminu2(a, b), c), high = __vmaxu2(__vmaxu2(a, b), c);
    return {low, a + b + c - low - high, high};  // in each half the one that is neither
}

// Compute the medians around two rows b and c, of which a lies above and d below.
__device__ __forceinline__ void medians9(
    const Sorted& a, const Sorted& b, const Sorted& c, const Sorted& d, u32* made)
{
    u32 low = __vminu2(b.middle, c.middle), high = __vmaxu2(b.middle, c.middle);
    made[0] = middle_of(__vmaxu2(b.low, __vmaxu2(a.low, c.low)),
        __vminu2(__vmaxu2(a.middle, low), high), __vminu2(b.high, __vminu2(a.high, c.high)));
    made[1] = middle_of(__vmaxu2(b.low, __vmaxu2(d.low, c.low)),
        __vminu2(__vmaxu2(d.middle, low), high), __vminu2(b.high, __vminu2(d.high, c.high)));
}

// Sort every three neighbours of the row at w: the odd samples, then the even ones.
__device__ __forceinline__ void sort_row(const u32* w, int shift, Sorted* row)
{
    u32 left = __funnelshift_r(w[-1], w[0], 32 - shift),
        right = __funnelshift_rc(w[0], w[1], shift);
    row[0] = sorted(left, w[0], right);
    row[1] = sorted(left << 8, w[0] << 8, right << 8);
}

// The destination of words of results: the image where its rows are whole words, else a tile in
// shared memory.
template <int C> struct Results {
    u8* image;  // the tile's first byte in the image
    u32* tile;
    int stride;
    bool straight;

    __device__ __forceinline__ Results(const Item& item, const Tile& at, u32* out)
        : image(global<u8>(item.dst) + (i64)at.y * item.width * C + at.x * C),
          tile(out),
          stride(item.width * C),
          straight(stride % 4 == 0)
    {
    }

    __device__ __forceinline__ void store(int row, int word, u32 made) const
    {
        if (straight) *(u32*)(image + row * stride + 4 * word) = made;
        else tile[row * (STAGED_WIDTH / 4 * C) + word] = made;
    }

    __device__ __forceinline__ void finish(const Item& item, const Tile& at) const
    {
        if (straight) return;
        __syncthreads();
        store_tile<STAGED_WIDTH * C>(item, at, (const u8*)tile);
    }
};

// Load two words of a row and one more on either side.
template <int C> __device__ __forceinline__ void load_row(const u8* row, int at, int bytes, u32* w)
{
    uint2 two = *(const uint2*)(row + at);
    w[1] = two.x, w[2] = two.y;
    w[0] = at > 0 ? *(const u32*)(row + at - 4) : w[1] << (32 - 8 * C);
    w[3] = at + 8 < bytes ? *(const u32*)(row + at + 8) : w[2] >> (32 - 8 * C);
}

// Compute a tile of an image whose rows are whole vectors: a thread makes two words of each of
// MEDIAN_ROWS rows from registers alone.
template <int C> __device__ __forceinline__ void median_vectors(const Item& item, const Tile& tile)
{
    constexpr int VECTORS = STAGED_WIDTH / 8 * C;
    int bytes = item.width * C;
    for (int i = threadIdx.x; i < STAGED_HEIGHT / MEDIAN_ROWS * VECTORS; i += THREADS) {
        int at = tile.x * C + i % VECTORS * 8, first = i / VECTORS * MEDIAN_ROWS;
        if (at >= bytes || first >= tile.height) continue;
        u32 words[MEDIAN_ROWS + 2][4], made[MEDIAN_ROWS][2];
#pragma unroll
        for (int k = 0; k < MEDIAN_ROWS + 2; ++k)
            load_row<C>(source_row(item, tile.y + first + k - 1), at, bytes, words[k]);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            Sorted row[MEDIAN_ROWS + 2][2];
#pragma unroll
            for (int k = 0; k < MEDIAN_ROWS + 2; ++k) sort_row(words[k] + j + 1, 8 * C, row[k]);
#pragma unroll
            for (int k = 0; k < MEDIAN_ROWS; k += 2) {
                u32 odd[2], even[2];
                medians9(row[k][0], row[k + 1][0], row[k + 2][0], row[k + 3][0], odd);
                medians9(row[k][1], row[k + 1][1], row[k + 2][1], row[k + 3][1], even);
                for (int i = 0; i < 2; ++i) made[k + i][j] = __byte_perm(even[i], odd[i], 0x7351);
            }
        }
#pragma unroll
        for (int k = 0; k < MEDIAN_ROWS; ++k)
            if (first + k < tile.height)
                *(uint2*)(global<u8>(item.dst) + (i64)(tile.y + first + k) * bytes + at) =
                    make_uint2(made[k][0], made[k][1]);
    }
}

template <int C>
__device__ __forceinline__ void median_tile(
    const Item& item, const Tile& tile, u32* words, u32* out)
{
    if (item.width * C % 16 == 0) return median_vectors<C>(item, tile);
    constexpr int ACROSS = STAGED_WIDTH / 4 * C, PITCH = ACROSS + 8;
    int across = (tile.width * C + 3) / 4;
    Results<C> results(item, tile, out);
    stage_with_border<C>(item, tile, words);
    __syncthreads();
    for (int i = threadIdx.x; i < STAGED_HEIGHT / MEDIAN_ROWS * ACROSS; i += THREADS) {
        int at = i % ACROSS, first = i / ACROSS * MEDIAN_ROWS;
        if (at >= across || first >= tile.height) continue;
        Sorted row[MEDIAN_ROWS + 2][2];
#pragma unroll
        for (int k = 0; k < MEDIAN_ROWS + 2; ++k)
            sort_row(words + (first + k) * PITCH + at + 4, 8 * C, row[k]);
#pragma unroll
        for (int k = 0; k < MEDIAN_ROWS; k += 2) {
            u32 odd[2], even[2];
            medians9(row[k][0], row[k + 1][0], row[k + 2][0], row[k + 3][0], odd);
            medians9(row[k][1], row[k + 1][1], row[k + 2][1], row[k + 3][1], even);
            for (int i = 0; i < 2; ++i)
                if (first + k + i < tile.height)
                    results.store(first + k + i, at, __byte_perm(even[i], odd[i], 0x7351));
        }
    }
    results.finish(item, tile);
}

extern "C" __global__ void __launch_bounds__(256, 3)
    median_3(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 words[(STAGED_HEIGHT + 2) * (STAGED_WIDTH + 8) / 4];
    __shared__ uint4 out[STAGED_HEIGHT * STAGED_WIDTH / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, STAGED_WIDTH, STAGED_HEIGHT);
    if (item.channels == 1) median_tile<1>(item, tile, (u32*)words, (u32*)out);
    else if (item.channels == 3) median_tile<3>(item, tile, (u32*)words, (u32*)out);
    else median_tile<4>(item, tile, (u32*)words, (u32*)out);
}
LAUNCHED_BY_TILES(median_3, STAGED_WIDTH, STAGED_HEIGHT);
