// Erosion and dilation by small rectangles in one pass: down columns first, then along rows in
// shared memory. For the rows, words hold one sample of four rows, so that neighbours in a row are
// neighbouring words.
#include "filters/morphological/morphology.cuh"
#include "kernels/headers/bit_planes.cuh"
#include "kernels/headers/common.cuh"

constexpr int SMALL_RECT_WIDTH = 64;
constexpr int SMALL_RECT_WORDS = 6640,
              SMALL_RECT_RESULTS = 4752;  // enough for four channels: windows of 25, and of 16

// Return the height of a tile: strips of windows of 15 rows fill it, and five blocks fit a
// multiprocessor.
__device__ constexpr int small_rect_height(int length) { return length <= 16 ? 60 : 48; }

// The running minimum of words, byte by byte. Two samples share a word, in the high bytes of its
// halves, as in median.cu.
struct PackedMinimum {
    u32 odd = ~0u, even = ~0u;

    __device__ __forceinline__ void with(u32 word)
    {
        odd = __vminu2(odd, word), even = __vminu2(even, word << 8);
    }

    __device__ __forceinline__ u32 word() const { return __byte_perm(even, odd, 0x7351); }
};

// Compute the minimum of `length` words from each of n places on, n <= length. All these windows
// share a core; what lies before it and what follows are running minima (M. van Herk 1992; J. Gil,
// M. Werman 1993). The compiler moves no load before a store to the same memory, so AHEAD loads
// come first here. The last of them may repeat a word, which changes no minimum.
__device__ __forceinline__ void sliding_minima(
    int n, int length, const u32* from, int from_step, u32* to, int to_step)
{
    constexpr int AHEAD = 2;
    PackedMinimum least;
#pragma unroll 4
    for (int j = n - 1; j < length; ++j) least.with(from[j * from_step]);
    to[(n - 1) * to_step] = least.word();
    for (int j = n - 2; j >= 0; j -= AHEAD) {
        u32 words[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) words[k] = from[max(j - k, 0) * from_step];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            least.with(words[k]);
            to[max(j - k, 0) * to_step] = least.word();
        }
    }
    least = PackedMinimum();
    from += (length - 1) * from_step;
    for (int j = 1; j < n; j += AHEAD) {
        u32 words[AHEAD], upper[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            words[k] = from[min(j + k, n - 1) * from_step];
            upper[k] = to[min(j + k, n - 1) * to_step];
        }
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            least.with(words[k]);
            PackedMinimum both = least;
            both.with(upper[k]);
            to[min(j + k, n - 1) * to_step] = both.word();
        }
    }
}

// A thread's cell of a table of 2**bits columns and as many rows as the block has threads for.
struct TableCell {
    int column, row, rows;

    __device__ __forceinline__ TableCell(int bits)
        : column(threadIdx.x & (1 << bits) - 1),
          row(threadIdx.x >> bits),
          rows(THREADS >> bits)
    {
    }
};

// Load rows from y on, `vectors` (at most 32) times 16 samples of each, from sample `first`, a
// multiple of 16, on.
__device__ __forceinline__ void load_rows(
    const Item& item, int y, int rows, int first, int vectors, u32 flip, u32* to)
{
    int bytes = item.width * item.channels;
    TableCell at(vectors <= 8 ? 3 : vectors <= 16 ? 4 : 5);
    if (at.column >= vectors) return;
    first += 16 * at.column;
    uint4* place = (uint4*)to + at.column;
    if (first >= 0 && first + 16 <= bytes && bytes % 16 == 0) {
        const u8* src = global<const u8>(item.src) + first;
#pragma unroll 5
        for (int row = at.row; row < rows; row += at.rows) {
            uint4 v = *(const uint4*)(src + (u32)(clamped(y + row, item.height) * bytes));
            place[row * vectors] = make_uint4(flip ^ v.x, flip ^ v.y, flip ^ v.z, flip ^ v.w);
        }
        return;
    }
    for (int row = at.row; row < rows; row += at.rows) {
        u32 four[4];
        samples16(source_row(item, y + row), bytes, item.channels, first, four);
        place[row * vectors] =
            make_uint4(flip ^ four[0], flip ^ four[1], flip ^ four[2], flip ^ four[3]);
    }
}

// Return the number of bits of the numbers below `across`, 4 to 7.
__device__ __forceinline__ int bits_of(int across)
{
    return across <= 16 ? 4 : across <= 32 ? 5 : across <= 64 ? 6 : 7;
}

// Compute the minima down columns: from lines of `pitch` words, `across` of them used, to lines of
// `across` words.
__device__ __forceinline__ void minima_down(
    const u32* from, int pitch, int across, int rows, int length, u32* lines)
{
    TableCell at(bits_of(across));
    if (at.column >= across) return;
    for (int y = at.row * length; y < rows; y += at.rows * length) {
        sliding_minima(min(length, rows - y), length, from + y * pitch + at.column, pitch,
            lines + y * across + at.column, across);
    }
}

// Transpose words of four samples of one row to words of one sample of four rows; four rows become
// one line of `pitch` words.
__device__ __forceinline__ void rows_to_words(
    const u32* lines, int across, int groups, int pitch, u32* standing)
{
    TableCell at(bits_of(across));
    if (at.column >= across) return;
    for (int group = at.row; group < groups; group += at.rows) {
        const u32* from = lines + 4 * group * across + at.column;
        u32 four[4] = {from[0], from[across], from[2 * across], from[3 * across]};
        transpose_bytes(four[0], four[1], four[2], four[3]);
        store16((u8*)(standing + group * pitch + 4 * at.column), four);
    }
}

// Compute the minima along rows of transposed words, to lines of `made` words. Neighbouring lanes
// take different groups of rows. Groups begin in only 8 banks, so a warp takes 8 groups and 4 units,
// whose words lie in the banks between; of 12 groups or less that would leave lanes without work.
__device__ __forceinline__ void minima_across(const u32* standing, int pitch, int width, int c,
    int groups, int length, int strip, u32* to, int made)
{
    bool eights = groups > 12;
    int group = eights ? threadIdx.x % 8 + threadIdx.x / 128 * 8 : threadIdx.x % 16;
    int part = c == 1 ? 256 : c == 3 ? 86 : 64;  // 256 / c, rounded up
    if (group >= groups) return;
    for (int unit = eights ? threadIdx.x / 8 % 16 : threadIdx.x / 16;; unit += 16) {
        int x = (unit * part >> 8) * strip, sample = x * c + unit - (unit * part >> 8) * c;
        if (x >= width) return;
        sliding_minima(min(strip, width - x), length, standing + group * pitch + sample, c,
            to + group * made + sample, c);
    }
}

// Transpose back to words of four samples of one row, which undoes `rows_to_words`, and store them
// in rows that lie `stride` words apart.
__device__ __forceinline__ void words_to_rows(
    const u32* standing, int pitch, u32 flip, int across, int rows, u32* to, u32 stride)
{
    TableCell at(bits_of(across));
    if (at.column >= across) return;
    for (int row = 4 * at.row; row < rows; row += 4 * at.rows) {
        u32 four[4];
        load16((const u8*)(standing + row / 4 * pitch + 4 * at.column), four);
        transpose_bytes(four[0], four[1], four[2], four[3]);
        for (int k = 0; k < 4; ++k)
            if (row + k < rows) to[(row + k) * stride + at.column] = flip ^ four[k];
    }
}

extern "C" __global__ void __launch_bounds__(256, 5)
    morphology_small(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 one[SMALL_RECT_WORDS / 4], other[SMALL_RECT_RESULTS / 4];
    int block;
    Item item = find_item(items, starts, n, block), moved;
    MorphologyPass step = pass_of(item, moved);
    Tile tile = tile_of(item, block, SMALL_RECT_WIDTH, small_rect_height(step.length));
    u32 *standing = (u32*)one, *lines = (u32*)other, flip = step.dilates ? ~0u : 0;
    int c = item.channels, left = (tile.x - step.before) * c, first = left & ~15,
        extra = left - first;
    int bytes = (tile.width + step.length - 1) * c, vectors = (extra + bytes + 15) / 16;
    load_rows(
        moved, tile.y - step.before, tile.height + step.length - 1, first, vectors, flip, standing);
    __syncthreads();
    int across = (extra % 4 + bytes + 3) / 4, pitch = 4 * (across | 1),
        made = SMALL_RECT_WIDTH * c + 4;
    int groups = (tile.height + 3) / 4;
    minima_down(standing + extra / 4, 4 * vectors, across, tile.height, step.length, lines);
    __syncthreads();
    rows_to_words(lines, across, groups, pitch, standing);
    __syncthreads();
    minima_across(
        standing + extra % 4, pitch, tile.width, c, groups, step.length, step.strip, lines, made);
    __syncthreads();
    u32 stride = item.width * c;
    if (stride % 4 == 0) {
        u32* first = global<u32>(moved.dst) + (tile.y * stride + tile.x * c) / 4;
        words_to_rows(lines, made, flip, tile.width * c / 4, tile.height, first, stride / 4);
        return;
    }
    constexpr int QUADS = SMALL_RECT_WIDTH / 4;
    words_to_rows(lines, made, flip, QUADS * c, tile.height, standing, QUADS * c);
    __syncthreads();
    store_tile_of<SMALL_RECT_WIDTH>(moved, tile, (const u8*)standing);
}
