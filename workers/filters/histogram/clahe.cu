// Contrast-limited adaptive histogram equalisation: K. Zuiderveld, Graphics Gems IV, 1994, with
// OpenCV's arithmetic. The image is cut in tiles × tiles regions, mirrored to a whole number of
// pixels. A region's histogram of luminance is clipped, the excess spread evenly, and its
// cumulative sum, scaled to 255, is the region's table. A level becomes the mean of the tables of
// the four nearest regions, bilinear by the distance to their centres. Colours change by their
// luminance alone, by way of YCrCb.
//
//     region     region      `clahe_tables`: a block a region, a thread a level; tables in scratch.
//     +----+----+----+       `clahe`: a block makes 128 × 32 pixels; thread t owns the pixels
//     |  A · · B |   |       4 · (t % 32) … + 3 of the rows t / 32, t / 32 + 8, and so on.
//     |  · p  ·  |   |       p lies between the centres A, B, C, D. For each such place that the
//     +--·----·--+---+       block touches, `corners[place][level]` in shared memory packs the four
//     |  C · · D |   |       tables' values in one word; with more than CLAHE_PLACES places, the
//     +----+----+----+       values come from scratch.
#include "filters/histogram/histogram.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"

struct Clahe {
    // Regions along a side; their size in pixels; the most samples of a level.
    int tiles, width, height, clip;
    float scale, across, down;  // 255 / area, 1 / width, 1 / height of a region
};

constexpr int CLAHE_WIDTH = 128, CLAHE_HEIGHT = 32, CLAHE_PLACES = 8;

// Return Y of cv2.COLOR_RGB2YCrCb. The upper and lower bytes of the weights are multiplied apart.
__device__ __forceinline__ int luminance(u32 pixel)
{
    return (256 * __dp4a(pixel, 0x00072513u, 0u) + __dp4a(pixel, 0x004C9123u, 8192u)) >> 14;
}

// Load four samples of a row from sample `at` on, mirrored at its end. The function is separate for
// the reason given at `replicated4`.
static __device__ __noinline__ u32 mirrored4(const u8* row, int width, int channels, int at)
{
    u32 word = 0;
    for (int k = 0; k < 4; ++k) {
        int s = at + k, x = mirrored(s / channels, width);
        word |= (u32)row[x * channels + s % channels] << (8 * k);
    }
    return word;
}

static __device__ __noinline__ int mirrored_row(int y, int height) { return mirrored(y, height); }

// Load pixels x … x+3 of row y as words, mirrored along both axes.
template <int C>
__device__ __forceinline__ void mirrored_words(const Item& item, int x, int y, u32* words)
{
    if (y >= item.height) y = mirrored_row(y, item.height);
    const u8* row = global<const u8>(item.src) + (i64)y * item.width * C;
    if (x + 4 <= item.width) inner_pixels4<C>(row, x, words);
    else
        for (int c = 0; c < C; ++c) words[c] = mirrored4(row, item.width, C, x * C + 4 * c);
}

// Count the luminances of a region. The loads of AT_ONCE steps are started before any of their
// pixels is counted.
template <int C>
__device__ __forceinline__ void count_tile(
    const Item& item, const Clahe& of, int block, const SharedHistogram& counters)
{
    constexpr int AT_ONCE = 2;
    int left = block % of.tiles * of.width, top = block / of.tiles * of.height;
    int groups = (of.width + 3) / 4, down = THREADS / groups, over = THREADS % groups;
    int y = threadIdx.x / groups, group = threadIdx.x % groups;
    while (y < of.height) {
        u32 words[AT_ONCE][C];
        int n[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            n[i] = y < of.height ? of.width - 4 * group : 0;
            if (n[i]) mirrored_words<C>(item, left + 4 * group, top + y, words[i]);
            y += down, group += over;
            if (group >= groups) group -= groups, ++y;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            u32 pixel[4];
            pixels_of_words<C>(words[i], pixel);
            if (C > 1)
                for (int k = 0; k < 4; ++k) pixel[k] = luminance(pixel[k]);
            if (n[i] >= 4)
                for (int k = 0; k < 4; ++k) counters(0, pixel[k]);
            else
                for (int k = 0; k < 3; ++k)
                    if (k < n[i]) counters(0, pixel[k]);
        }
    }
}

// Make the table of a region; a thread has one level.
extern "C" __global__ void __launch_bounds__(256)
    clahe_tables(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 bins[256 * 2];
    __shared__ u32 totals[8], excess;
    int block, level = threadIdx.x;
    Item item = find_item(items, starts, n, block);
    const Clahe& of = *global<const Clahe>(item.data);
    if (level == 0) excess = 0;
    SharedHistogram counters = {(u32*)bins};
    counters.clear(256);
    __syncthreads();
    if (item.channels == 1) count_tile<1>(item, of, block, counters);
    else if (item.channels == 3) count_tile<3>(item, of, block, counters);
    else count_tile<4>(item, of, block, counters);
    __syncthreads();
    int count = counters.total(level);
    if (count > of.clip) atomicAdd(&excess, (u32)(count - of.clip));
    __syncthreads();
    int rest = excess % 256, step = max(256 / max(rest, 1), 1);
    count = min(count, of.clip) + excess / 256 + (level % step == 0 && level / step < rest);
    float tone = __fmul_rn(__uint2float_rn(cumulative_count(count, totals)), of.scale);
    global<u8>(item.scratch)[block * 256 + level] = (u8)min(__float2int_rn(tone), 255);
}

// The position of a pixel between the centres of two regions: the first region, -1 before all of
// them, and the share of the second.
struct TilePosition {
    int first;
    float share;
};

__device__ __forceinline__ TilePosition tile_position(int at, float inverse)
{
    float place = __fsub_rn(__fmul_rn(__int2float_rn(at), inverse), 0.5f);
    int first = __float2int_rd(place);
    return {first, __fsub_rn(place, __int2float_rn(first))};
}

// Return what a level becomes in the four regions around a place. The function is separate for the
// reason given at `replicated4`.
static __device__ __noinline__ u32 neighbour_tones(
    const u8* tables, int tiles, int across, int down, int level)
{
    const u8* upper = tables + clamped(down, tiles) * tiles * 256 + level;
    const u8* lower = tables + clamped(down + 1, tiles) * tiles * 256 + level;
    int first = clamped(across, tiles) * 256, second = clamped(across + 1, tiles) * 256;
    return packed(upper[first], upper[second], lower[first], lower[second]);
}

__device__ __forceinline__ float mixed(float first, float second, float share)
{
    return __fadd_rn(__fmul_rn(first, __fsub_rn(1.0f, share)), __fmul_rn(second, share));
}

__device__ __forceinline__ int interpolated(u32 four, float across, float down)
{
    float above = mixed(level_of(four, 0), level_of(four, 1), across);
    float below = mixed(level_of(four, 2), level_of(four, 3), across);
    return __float_as_uint(__fadd_rn(mixed(above, below, down), 8388608.0f)) & 255;
}

__device__ __forceinline__ u32 as_byte(int value) { return min(max(value, 0), 255); }

// Give a pixel another luminance, by way of YCrCb, with OpenCV's roundings.
__device__ __forceinline__ void with_luminance(u32 pixel, int from, int to, u32* made)
{
    int red = as_byte((((int)byte_of(pixel, 0) - from) * 11682 + (128 << 14) + 8192) >> 14) - 128;
    int blue = as_byte((((int)byte_of(pixel, 2) - from) * 9241 + (128 << 14) + 8192) >> 14) - 128;
    made[0] = as_byte(to + ((red * 22987 + 8192) >> 14));
    made[1] = as_byte(to + ((blue * -5636 + red * -11698 + 8192) >> 14));
    made[2] = as_byte(to + ((blue * 29049 + 8192) >> 14));
}

// Compute a tile. `corners` holds the tables of the places that it touches, `places` of them in a
// row; with `places` = 0 they are read from scratch.
template <int C>
__device__ __forceinline__ void clahe_tile(
    const Item& item, const Tile& tile, const Clahe& of, const u32* corners, int places, u32* out)
{
    const u8* tables = global<const u8>(item.scratch);
    int group = threadIdx.x % (CLAHE_WIDTH / 4) * 4;
    int left = tile_position(tile.x, of.across).first, top = tile_position(tile.y, of.down).first;
    TilePosition x[4];
    for (int k = 0; k < 4; ++k)
        x[k] = tile_position(min(tile.x + group + k, item.width - 1), of.across);
    for (int row = threadIdx.x / (CLAHE_WIDTH / 4); row < tile.height && group < tile.width;
        row += THREADS / (CLAHE_WIDTH / 4)) {
        TilePosition y = tile_position(tile.y + row, of.down);
        const u32* line = corners + ((y.first - top) * places - left) * 256;
        u32 words[C], pixel[4], four[4], bytes[4 * C];
        int level[4];
        words4<C>(source_row(item, tile.y + row), item.width, tile.x + group, words);
        pixels_of_words<C>(words, pixel);
        for (int k = 0; k < 4; ++k) level[k] = C == 1 ? pixel[k] : luminance(pixel[k]);
        if (places)
            for (int k = 0; k < 4; ++k) four[k] = line[x[k].first * 256 + level[k]];
        else
            for (int k = 0; k < 4; ++k)
                four[k] = neighbour_tones(tables, of.tiles, x[k].first, y.first, level[k]);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            u32 made = interpolated(four[k], x[k].share, y.share);
            if constexpr (C == 1) bytes[k] = made;
            else with_luminance(pixel[k], level[k], made, bytes + C * k);
            if constexpr (C == 4) bytes[4 * k + 3] = pixel[k] >> 24;
        }
#pragma unroll
        for (int i = 0; i < C; ++i)
            out[(row * CLAHE_WIDTH + group) / 4 * C + i] =
                packed(bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]);
    }
    __syncthreads();
    store_tile<CLAHE_WIDTH * C>(item, tile, (const u8*)out);
}

extern "C" __global__ void __launch_bounds__(256, 4)
    clahe(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 out[CLAHE_WIDTH * CLAHE_HEIGHT / 4];
    __shared__ u32 corners[CLAHE_PLACES * 256];
    int block;
    Item item = find_item(items, starts, n, block);
    const Clahe of = *global<const Clahe>(item.data);
    Tile tile = tile_of(item, block, CLAHE_WIDTH, CLAHE_HEIGHT);
    int left = tile_position(tile.x, of.across).first, top = tile_position(tile.y, of.down).first;
    int places = tile_position(tile.x + tile.width - 1, of.across).first - left + 1;
    int lines = tile_position(tile.y + tile.height - 1, of.down).first - top + 1;
    if (places * lines > CLAHE_PLACES) places = 0;
    for (int i = 0; i < places * lines; ++i)
        corners[i * 256 + threadIdx.x] = neighbour_tones(global<const u8>(item.scratch), of.tiles,
            left + i % places, top + i / places, threadIdx.x);
    __syncthreads();
    if (item.channels == 1) clahe_tile<1>(item, tile, of, corners, places, (u32*)out);
    else if (item.channels == 3) clahe_tile<3>(item, tile, of, corners, places, (u32*)out);
    else clahe_tile<4>(item, tile, of, corners, places, (u32*)out);
}
LAUNCHED_BY_TILES(clahe, CLAHE_WIDTH, CLAHE_HEIGHT);
