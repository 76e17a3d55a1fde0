// Erosion and dilation: the minimum or maximum over a neighbourhood. A dilation is an erosion of
// the complement. Samples outside the image are ignored, which for these neighbourhoods equals
// replicated borders. Rectangles are windows along rows, then along columns. Other shapes have a
// run of samples in each of their rows. Minima over windows of 2**k samples come from those over
// 2**(k - 1) ("doubled windows"); any window is the minimum of two of them that overlap.
#include "filters/morphological/morphology.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"

constexpr int LINES_WIDTH = 256, LINES_HEIGHT = 32, LINES_WORDS = (LINES_WIDTH + 256) + 8;
constexpr int STRIP_WIDTH = 128, STRIP_HEIGHT = 64, STRIP_ROWS = 32;
constexpr int RUNS_WIDTH = 128, RUNS_HEIGHT = 32, RUNS_WORDS = 10240;

__device__ __forceinline__ u32 bytes_at(const u32* line, int at)
{
    return at & 3 ? __funnelshift_r(line[at >> 2], line[(at >> 2) + 1], 8 * (at & 3))
                  : line[at >> 2];
}

// Load, by a warp, `words` words of a row from sample `at`, a multiple of 16, on.
__device__ __forceinline__ void load_line(
    const Item& item, int y, int at, int words, u32 flip, u32* to)
{
    const u8* row = source_row(item, y);
    for (int i = threadIdx.x % 32 * 4; i < words; i += 128) {
        u32 four[4];
        samples16(row, item.width * item.channels, item.channels, at + 4 * i, four);
        for (int k = 0; k < 4; ++k) four[k] ^= flip;
        store16((u8*)(to + i), four);
    }
}

// Make, by a warp, windows twice as long as those of `line`, which have `span` bytes.
__device__ __forceinline__ void double_windows(const u32* line, int words, int span, u32* to)
{
    for (int i = threadIdx.x % 32; i + span / 4 + 1 < words; i += 32)
        to[i] = __vminu4(line[i], bytes_at(line, 4 * i + span));
}

// Erode or dilate along rows, with windows of up to 257 samples; a warp takes one row at a time.
extern "C" __global__ void __launch_bounds__(256)
    morphology_rows(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 lines[8][2][LINES_WORDS / 4];
    int block;
    Item item = find_item(items, starts, n, block), moved;
    MorphologyPass step = pass_of(item, moved);
    Tile tile = tile_of(item, block, LINES_WIDTH, LINES_HEIGHT);
    int c = item.channels, bytes = tile.width * c, first = (tile.x - step.before) * c;
    int origin = first & ~15, extra = first - origin;
    int words = (extra + bytes + (step.length - 1) * c + 3) / 4 + 3;
    u32 flip = step.dilates ? ~0u : 0, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int row = warp; row < tile.height; row += 8) {
        u32 *line = (u32*)lines[warp][0], *other = (u32*)lines[warp][1];
        __syncwarp();
        load_line(moved, tile.y + row, origin, words, flip, line);
        __syncwarp();
        int span = 1;
        for (; 2 * span <= step.length; span *= 2) {
            double_windows(line, words, span * c, other);
            u32* made = other;
            other = line, line = made;
            __syncwarp();
        }
        int last = extra + (step.length - span) * c;
        for (int i = lane; i < (bytes + 3) / 4; i += 32)
            other[i] = flip ^ __vminu4(bytes_at(line, 4 * i + extra), bytes_at(line, 4 * i + last));
        __syncwarp();
        u8* to = global<u8>(moved.dst) + ((i64)(tile.y + row) * item.width + tile.x) * c;
        for (int at = 4 * lane - (int)((u64)to & 3); at < bytes; at += 128)
            store4(to, (const u8*)other, at, bytes);
    }
}
LAUNCHED_BY_TILES(morphology_rows, LINES_WIDTH, LINES_HEIGHT);

__device__ __forceinline__ void store_word(u8* line, u32 word, int at, int bytes)
{
    if (((u64)line & 3) == 0 && at + 4 <= bytes) {
        *(u32*)(line + at) = word;
    } else {
        for (int k = 0; k < min(4, bytes - at); ++k) line[at + k] = (u8)byte_of(word, k);
    }
}

// Compute four samples of `rows` rows, from y on. There are no more rows than a window has, so all
// their windows share a core; what lies above the core and what lies below are running minima (M.
// van Herk 1992; J. Gil, M. Werman 1993).
__device__ __forceinline__ void minima_of_rows(
    const Item& item, const MorphologyPass& step, int at, int y, int rows, u32 flip, u32* upper)
{
    int bytes = item.width * item.channels, top = y - step.before;
    int low = clamped(top + rows - 1, item.height),
        high = clamped(top + step.length - 1, item.height);
    u32 least = ~0u;
#pragma unroll 4
    for (int row = low; row <= high; ++row)
        least = __vminu4(least, flip ^ samples4(source_row(item, row), bytes, item.channels, at));
    upper[(rows - 1) * THREADS] = least;
#pragma unroll 4
    for (int j = rows - 2; j >= 0; --j) {
        least =
            __vminu4(least, flip ^ samples4(source_row(item, top + j), bytes, item.channels, at));
        upper[j * THREADS] = least;
    }
    u8* to = global<u8>(item.dst) + (i64)y * bytes;
    store_word(to, flip ^ upper[0], at, bytes);
    least = ~0u;
#pragma unroll 4
    for (int j = 1; j < rows; ++j) {
        const u8* row = source_row(item, top + step.length - 1 + j);
        least = __vminu4(least, flip ^ samples4(row, bytes, item.channels, at));
        store_word(to += bytes, flip ^ __vminu4(upper[j * THREADS], least), at, bytes);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    morphology_columns(const Item* items, const u32* starts, int n)
{
    __shared__ u32 upper[STRIP_ROWS * THREADS];
    int block;
    Item item = find_item(items, starts, n, block), moved;
    MorphologyPass step = pass_of(item, moved);
    Tile tile = tile_of(item, block, STRIP_WIDTH, STRIP_HEIGHT);
    int across = (tile.width * item.channels + 3) / 4, most = min(step.length, STRIP_ROWS);
    for (int i = threadIdx.x;; i += THREADS) {
        int at = tile.x * item.channels + i % across * 4, y = i / across * most;
        if (y >= tile.height) return;
        minima_of_rows(moved, step, at, tile.y + y, min(most, tile.height - y),
            step.dilates ? ~0u : 0, upper + threadIdx.x);
    }
}
LAUNCHED_BY_TILES(morphology_columns, STRIP_WIDTH, STRIP_HEIGHT);

// Erode a tile by the runs of a shape: a thread makes one word of R rows. Rows of the source come
// to shared memory with their doubled windows, as many at a time as fit.
template <int C, int R>
__device__ __forceinline__ void runs_tile(
    const Item& item, const Tile& tile, const Run* runs, u32 flip, u32* lines)
{
    constexpr int ACROSS = RUNS_WIDTH / 4 * C;
    const Morphology& of = morphology_of(item);
    int first = (tile.x - of.left) * C, origin = first & ~15;
    int words = ((first - origin + (tile.width + of.left + of.right) * C + 3) / 4 + 6) & ~3;
    int level_words = words * of.levels, most = min(8, RUNS_WORDS / level_words);
    int word = threadIdx.x % ACROSS, row = threadIdx.x / ACROSS * R, warp = threadIdx.x / 32;
    int begin = max(0, tile.y - of.above);
    int end = min(item.height, tile.y + tile.height + of.size - 1 - of.above);
    u32 least[R];
#pragma unroll
    for (int o = 0; o < R; ++o) least[o] = ~0u;
    for (int y = begin; y < end; y += most) {
        int rows = min(most, end - y);
        __syncthreads();
        if (warp < rows) {
            u32* line = lines + warp * level_words;
            load_line(item, y + warp, origin, words, flip, line);
            for (int level = 1; level < of.levels; ++level, line += words) {
                __syncwarp();
                double_windows(line, words, C << (level - 1), line + words);
            }
        }
        __syncthreads();
        for (int k = 0; row < RUNS_HEIGHT && k < rows; ++k) {
            int shape_row = y + k - tile.y - row + of.above;
#pragma unroll
            for (int o = 0; o < R; ++o) {
                if ((u32)(shape_row - o) >= (u32)of.size) continue;
                Run run = runs[shape_row - o];
                const u32* line = lines + k * level_words + run.level * words;
                int at = 4 * word + (tile.x - of.left) * C - origin;
                least[o] = __vminu4(least[o], bytes_at(line, at + run.first * C));
                least[o] = __vminu4(least[o], bytes_at(line, at + run.second * C));
            }
        }
    }
    __syncthreads();
    if (row < RUNS_HEIGHT)
#pragma unroll
        for (int o = 0; o < R; ++o) lines[(row + o) * ACROSS + word] = flip ^ least[o];
    __syncthreads();
    store_tile<RUNS_WIDTH * C>(item, tile, (const u8*)lines);
}

extern "C" __global__ void __launch_bounds__(256)
    morphology_runs(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 lines[RUNS_WORDS / 4 + 8];
    __shared__ Run runs[201];
    int block;
    Item item = find_item(items, starts, n, block), moved;
    MorphologyPass step = pass_of(item, moved);
    Tile tile = tile_of(item, block, RUNS_WIDTH, RUNS_HEIGHT);
    const Morphology& of = morphology_of(item);
    for (int i = threadIdx.x; i < of.size; i += THREADS) runs[i] = of.runs[i];
    u32 flip = step.dilates ? ~0u : 0;
    if (item.channels == 1) runs_tile<1, 4>(moved, tile, runs, flip, (u32*)lines);
    else if (item.channels == 3) runs_tile<3, 16>(moved, tile, runs, flip, (u32*)lines);
    else runs_tile<4, 16>(moved, tile, runs, flip, (u32*)lines);
}
LAUNCHED_BY_TILES(morphology_runs, RUNS_WIDTH, RUNS_HEIGHT);

// Subtract one image from another; alpha is the source's.
extern "C" __global__ void __launch_bounds__(256)
    morphology_difference(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    MorphologyPass step = morphology_of(item).steps[item.step];
    const u8* from = global<const u8>(buffer_of(item, step.from));
    const u8* less = global<const u8>(buffer_of(item, step.to));
    const u8* src = global<const u8>(item.src);
    u8* dst = global<u8>(item.dst);
    u32 total = samples_of(item), kept = item.channels == 4 ? 0xFF000000u : 0;
    for (u32 at = block * LINE + 4 * threadIdx.x, i = 0; i < 12 && at < total;
        ++i, at += 4 * THREADS) {
        u32 made = __vsubus4(*(const u32*)(from + at), *(const u32*)(less + at));
        made = (made & ~kept) | (*(const u32*)(src + at) & kept);
        store_word(dst, made, at, total);
    }
}
LAUNCHED_BY_LINES(morphology_difference, LINE);
