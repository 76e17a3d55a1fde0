// Encode images as baseline JPEGs with the bytes that libjpeg-turbo writes: its colour conversion,
// its downsampling and both of its forward DCTs are made of integers, so a device can repeat them.
//
// A JPEG is a sequence of blocks of 8 x 8 samples, in units of some blocks of each component. Three
// kernels follow each other.
//
// 1. `jpeg_blocks` computes the 64 quantised coefficients of each block, in zigzag order. Blocks do
//    not depend on each other. Eight threads compute a block: each a row, then each a column.
// 2. `pack_jpeg` writes the Huffman codes, with one block of threads for a file. The codes of a
//    block begin at a bit that depends on all blocks before. So each thread first counts the bits
//    of its block, prefix sums give the places, and the thread then writes its codes there. The
//    same happens to bytes: a 0 follows each byte 0xFF, so prefix sums of their numbers give the
//    place of each byte in the file.
// 3. `store_jpegs` copies the files to the host, as many bytes as each has.
#include "kernels/headers/scan.cuh"

// What the images of a launch that have the same number of channels share: `TABLES` of
// workers/engines/cuda/jpeg_encoder.py.
struct JpegTables {
    u32 wide, high;     // luma blocks of a unit in both directions
    u32 header, size;   // bytes of the header, and where height and width stand in it
    u32 fast, unused;   // whether the quick DCT is used
    u16 steps[2][64];   // divisors of the coefficients of luma and chroma, row by row
    u32 codes[4][256];  // length << 16 | code of each symbol: DC and AC of luma, then of chroma
    u8 bytes[1024];     // the header
};

// How the blocks of an image are arranged. `luma` blocks of a unit come before those of chroma.
struct JpegLayout {
    int wide, high, luma, per_unit, units_across, n;

    __device__ inline JpegLayout(const Item& item, const JpegTables& tables)
        : wide(tables.wide),
          high(tables.high)
    {
        luma = wide * high;
        per_unit = luma + item.channels - 1;
        units_across = (item.width + 8 * wide - 1) / (8 * wide);
        n = units_across * ((item.height + 8 * high - 1) / (8 * high)) * per_unit;
    }
};

constexpr int JPEG_TILE = 128, JPEG_TILE_ROWS = 16;  // pixels, whole units of all subsamplings
constexpr int JPEG_BLOCKS = THREADS / 8;             // blocks that a block of threads computes
constexpr int FILE_AT = 16;         // where a file begins; its size, or 0, stands before it
constexpr int PACKED_WORDS = 8192;  // of the codes of THREADS blocks, two bytes a sample

__device__ inline int descaled(int value, int bits) { return (value + (1 << (bits - 1))) >> bits; }

// Transform eight values that are STRIDE apart, by the algorithm of Loeffler, Ligtenberg and
// Moschytz (1989, "Practical fast 1-D DCT algorithms with 11 multiplications",
// https://doi.org/10.1109/ICASSP.1989.266596), with constants of 13 bits behind the point. Rows
// keep two more bits, which columns give back. The results of both together are eight times those
// of an orthonormal DCT.
template <int STRIDE, bool ROWS> __device__ inline void transform_exactly(int* v)
{
    constexpr int BITS = ROWS ? 11 : 15;
    int sum[4], gap[4];
    for (int i = 0; i < 4; ++i) {
        sum[i] = v[i * STRIDE] + v[(7 - i) * STRIDE];
        gap[i] = v[i * STRIDE] - v[(7 - i) * STRIDE];
    }
    int outer = sum[0] + sum[3], inner = sum[1] + sum[2];
    int far = sum[0] - sum[3], near = sum[1] - sum[2];
    v[0] = ROWS ? (outer + inner) * 4 : descaled(outer + inner, 2);
    v[4 * STRIDE] = ROWS ? (outer - inner) * 4 : descaled(outer - inner, 2);
    int turned = (near + far) * 4433;
    v[2 * STRIDE] = descaled(turned + far * 6270, BITS);
    v[6 * STRIDE] = descaled(turned - near * 15137, BITS);
    int z1 = (gap[3] + gap[0]) * -7373, z2 = (gap[2] + gap[1]) * -20995;
    int z3 = gap[3] + gap[1], z4 = gap[2] + gap[0], z5 = (z3 + z4) * 9633;
    z3 = z5 - z3 * 16069, z4 = z5 - z4 * 3196;
    v[7 * STRIDE] = descaled(gap[3] * 2446 + z1 + z3, BITS);
    v[5 * STRIDE] = descaled(gap[2] * 16819 + z2 + z4, BITS);
    v[3 * STRIDE] = descaled(gap[1] * 25172 + z2 + z3, BITS);
    v[STRIDE] = descaled(gap[0] * 12299 + z1 + z4, BITS);
}

// Multiply by a constant with 8 bits behind the point and round down, in 16 bits, as the library
// does it by vector instructions: a value beyond 13 bits overflows there, and has to here.
__device__ inline int times_8(int value, int constant)
{
    return ((int)(short)(value * 4) * (constant * 64)) >> 16;
}

// Transform eight values that are STRIDE apart, by the algorithm of Arai, Agui and Nakajima (1988,
// "A fast DCT-SQ scheme for images"). Each result has a scale of its own, as its divisor has.
template <int STRIDE> __device__ inline void transform_quickly(int* v)
{
    int sum[4], gap[4];
    for (int i = 0; i < 4; ++i) {
        sum[i] = v[i * STRIDE] + v[(7 - i) * STRIDE];
        gap[i] = v[i * STRIDE] - v[(7 - i) * STRIDE];
    }
    int outer = sum[0] + sum[3], inner = sum[1] + sum[2];
    int far = sum[0] - sum[3], turned = times_8(sum[1] - sum[2] + far, 181);
    v[0] = outer + inner, v[4 * STRIDE] = outer - inner;
    v[2 * STRIDE] = far + turned, v[6 * STRIDE] = far - turned;
    int low = gap[3] + gap[2], middle = times_8(gap[2] + gap[1], 181), high = gap[1] + gap[0];
    int both = times_8(low - high, 98);
    low = times_8(low, 139) + both, high = times_8(high, 334) + both;
    int plus = gap[0] + middle, minus = gap[0] - middle;
    v[5 * STRIDE] = minus + low, v[3 * STRIDE] = minus - low;
    v[STRIDE] = plus + high, v[7 * STRIDE] = plus - high;
}

// Return luma (0), Cb (1) or Cr (2) of a pixel, or its grey, with 16 bits behind the point. The
// constants of Cb and Cr end in 32767, not 32768, so that 255.5 does not become 256.
__device__ inline int component_of(const u8* pixel, int component, int channels)
{
    if (channels == 1) return *pixel;
    int r = pixel[0], g = pixel[1], b = pixel[2];
    if (component == 0) return (19595 * r + 38470 * g + 7471 * b + 32768) >> 16;
    int other =
        component == 1 ? -11059 * r - 21709 * g + 32768 * b : 32768 * r - 27439 * g - 5329 * b;
    return (other + (128 << 16) + 32767) >> 16;
}

// Store eight samples of a block, less 128: row `y` of the component, from column `x` on. The image
// is continued by its last column to the right, and each component by its last row to the bottom.
// The mean of a chroma sample is rounded up and down by turns.
__device__ inline void load_samples(
    const Item& item, const JpegLayout& layout, int component, int x, int y, int* row)
{
    int across = component ? layout.wide : 1, down = component ? layout.high : 1;
    y = min(y, (item.height + down - 1) / down - 1);
    for (int i = 0; i < 8; ++i) {
        int sum = 0;
        for (int v = 0; v < down; ++v) {
            const u8* line = source_row(item, y * down + v);
            for (int u = 0; u < across; ++u) {
                int column = min((x + i) * across + u, item.width - 1);
                sum += component_of(line + column * item.channels, component, item.channels);
            }
        }
        int n = across * down;
        if (n == 4) sum = (sum + 1 + (i & 1)) >> 2;
        else if (n == 2) sum = (sum + (i & 1)) >> 1;
        row[i] = sum - 128;
    }
}

// Return the place of a coefficient in zigzag order, which follows one diagonal after the other.
__device__ inline int zigzag_of(int x, int y)
{
    int diagonal = x + y, along = diagonal % 2 ? y : x, left = 15 - diagonal;
    if (diagonal < 8) return diagonal * (diagonal + 1) / 2 + along;
    return 64 - left * (left + 1) / 2 + along - (8 - left);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    jpeg_blocks(const Item* items, const u32* starts, int n)
{
    __shared__ int values[JPEG_BLOCKS][8 * 9];
    __shared__ __align__(16) short ordered[JPEG_BLOCKS][64];
    int block;
    const Item item = find_item(items, starts, n, block);
    const JpegTables& tables = *global<const JpegTables>(item.data);
    const JpegLayout layout(item, tables);
    const Tile tile = tile_of(item, block, JPEG_TILE, JPEG_TILE_ROWS);
    int unit_width = 8 * layout.wide, unit_height = 8 * layout.high;
    int across = (tile.width + unit_width - 1) / unit_width;
    int units = across * ((tile.height + unit_height - 1) / unit_height);
    int last_x = (item.width + 7) / 8 - 1, last_y = (item.height + 7) / 8 - 1;
    int own = threadIdx.x / 8, lane = threadIdx.x % 8;
    for (int first = 0; first < units * layout.per_unit; first += JPEG_BLOCKS) {
        int number = first + own, unit = number / layout.per_unit, k = number % layout.per_unit;
        int unit_x = tile.x / unit_width + unit % across;
        int unit_y = tile.y / unit_height + unit / across;
        bool there = number < units * layout.per_unit, empty = false;
        int component = max(0, k - layout.luma + 1), x = unit_x, y = unit_y;
        if (component == 0) {
            // A unit at an end may have luma blocks beyond the image. Such a block has the mean of
            // the block before it, and no other coefficients.
            x = unit_x * layout.wide + k % layout.wide, y = unit_y * layout.high + k / layout.wide;
            empty = x > last_x || y > last_y;
            if (y > last_y) --y, x = unit_x * layout.wide + layout.wide - 1;
            if (x > last_x) --x;
        }
        if (there) {
            int row[8];
            load_samples(item, layout, component, 8 * x, 8 * y + lane, row);
            if (tables.fast) transform_quickly<1>(row);
            else transform_exactly<1, true>(row);
            for (int i = 0; i < 8; ++i) values[own][lane * 9 + i] = row[i];
        }
        __syncwarp();
        if (there) {
            if (tables.fast) transform_quickly<9>(&values[own][lane]);
            else transform_exactly<9, false>(&values[own][lane]);
            for (int i = 0; i < 8; ++i) {
                int value = values[own][i * 9 + lane];
                u32 step = tables.steps[component > 0][i * 8 + lane];
                u32 size = ((u32)(value < 0 ? -value : value) + step / 2) / step;
                if (empty && i + lane > 0) size = 0;
                ordered[own][zigzag_of(lane, i)] = value < 0 ? -(int)size : (int)size;
            }
        }
        __syncwarp();
        if (there) {
            int at = (unit_y * layout.units_across + unit_x) * layout.per_unit + k;
            global<uint4>(item.scratch)[at * 8 + lane] = ((const uint4*)ordered[own])[lane];
        }
        __syncwarp();
    }
}
LAUNCHED_BY_TILES(jpeg_blocks, JPEG_TILE, JPEG_TILE_ROWS);

// Give `put` each code of a block with its length in bits, values behind the codes included.
template <class Put>
__device__ inline void code_block(const short* block, int before, const u32 (*codes)[256], Put put)
{
    int run = 0;
    for (int eighth = 0; eighth < 8; ++eighth) {
        uint4 words = ((const uint4*)block)[eighth];
        u32 pairs[4] = {words.x, words.y, words.z, words.w};
        for (int i = 0; i < 8; ++i) {
            bool is_mean = eighth + i == 0;
            int value = (short)(pairs[i / 2] >> 16 * (i % 2)) - (is_mean ? before : 0);
            if (value == 0 && !is_mean) {
                ++run;
                continue;
            }
            for (; run > 15; run -= 16) put(codes[1][0xF0] & 0xFFFF, codes[1][0xF0] >> 16);
            int bits = 32 - __clz(value < 0 ? -value : value);
            u32 code = codes[!is_mean][run << 4 | bits];
            u32 low = (u32)(value < 0 ? value - 1 : value) & ((1u << bits) - 1);
            put((code & 0xFFFF) << bits | low, (code >> 16) + bits);
            run = 0;
        }
    }
    if (run) put(codes[1][0] & 0xFFFF, codes[1][0] >> 16);
}

// Return the sum of the values of all threads before this one; `total` becomes the sum of all.
// Every thread of the block has to call it.
__device__ inline u32 sum_before(u32 own, u32* totals, u32& total)
{
    u32 upto = scan_warp(own);
    __syncthreads();
    if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = upto;
    __syncthreads();
    total = 0;
    for (int warp = 0; warp < THREADS / 32; ++warp) total += totals[warp];
    return before_thread(own, upto, totals);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    pack_jpeg(const Item* items, const u32* starts, int n)
{
    __shared__ u32 codes[4][256];
    __shared__ u32 packed_bits[PACKED_WORDS + 2];
    __shared__ u32 totals[THREADS / 32];
    int none;
    const Item item = find_item(items, starts, n, none);
    const JpegTables& tables = *global<const JpegTables>(item.data);
    const JpegLayout layout(item, tables);
    const short* blocks = global<const short>(item.scratch);
    u8* file = global<u8>(item.dst) + FILE_AT;
    const u32 room = (u32)item.width * (u32)item.height * (u32)item.channels;
    for (int i = threadIdx.x; i < 4 * 256; i += THREADS)
        (&codes[0][0])[i] = (&tables.codes[0][0])[i];
    for (u32 i = threadIdx.x; i < tables.header; i += THREADS) {
        u32 byte = tables.bytes[i], at = i - tables.size;
        if (at < 4) byte = (at < 2 ? item.height : item.width) >> (at % 2 ? 0 : 8) & 255;
        if (i < room) file[i] = byte;
    }
    __syncthreads();
    u32 size = tables.header, left = 0, left_bits = 0;  // bits that do not fill a byte yet
    for (int first = 0; first < layout.n && size; first += THREADS) {
        int at = first + threadIdx.x, k = at % layout.per_unit;
        bool there = at < layout.n, is_luma = k < layout.luma;
        int last = at - (is_luma ? k ? 1 : layout.per_unit - layout.luma + 1 : layout.per_unit);
        const short* block = blocks + (size_t)at * 64;
        int before = there && last >= 0 ? blocks[(size_t)last * 64] : 0;
        const u32(*own)[256] = codes + (is_luma ? 0 : 2);
        u32 bits = 0, all;
        if (there) code_block(block, before, own, [&](u32, u32 length) { bits += length; });
        u32 place = sum_before(bits, totals, all) + left_bits;
        all += left_bits;
        if (all > 32 * PACKED_WORDS) {
            size = 0;
            break;
        }
        for (u32 i = threadIdx.x; i <= all / 32 + 1; i += THREADS)
            packed_bits[i] = i ? 0 : left << 24;
        __syncthreads();
        auto put = [&](u32 code, u32 length) {
            u64 word = (u64)code << (64 - place % 32 - length);
            atomicOr(&packed_bits[place / 32], (u32)(word >> 32));
            if ((u32)word) atomicOr(&packed_bits[place / 32 + 1], (u32)word);
            place += length;
        };
        if (there) code_block(block, before, own, put);
        if (at == layout.n - 1) put(127, 7);  // ones fill the last byte, and never a whole one
        if (first + THREADS >= layout.n) all += 7;
        __syncthreads();
        auto byte_at = [&](u32 i) { return packed_bits[i / 4] >> (24 - i % 4 * 8) & 255; };
        u32 bytes = all / 8, share = (bytes + THREADS - 1) / THREADS, zeros = 0, all_zeros;
        u32 begin = min(threadIdx.x * share, bytes), end = min(begin + share, bytes);
        for (u32 i = begin; i < end; ++i) zeros += byte_at(i) == 255;
        u32 target = size + begin + sum_before(zeros, totals, all_zeros);
        size += bytes + all_zeros;
        if (size + 2 >= room) {
            size = 0;
            break;
        }
        for (u32 i = begin; i < end; ++i) {
            u32 byte = byte_at(i);
            file[target++] = byte;
            if (byte == 255) file[target++] = 0;
        }
        left = byte_at(bytes), left_bits = all % 8;
        __syncthreads();
    }
    if (threadIdx.x) return;
    if (size) file[size++] = 0xFF, file[size++] = 0xD9;
    *(u32*)(file - FILE_AT) = size;
}
LAUNCHED_BY_BLOCKS(pack_jpeg, 1);

constexpr int STORING_BLOCKS = 8;  // of threads, for each file

extern "C" __global__ void __launch_bounds__(THREADS)
    store_jpegs(const Item* items, const u32* starts, int n)
{
    int block;
    const Item item = find_item(items, starts, n, block);
    const uint4* from = global<const uint4>(item.src);
    u32 vectors = (from->x + FILE_AT + 15) / 16;
    for (u32 i = block * THREADS + threadIdx.x; i < vectors; i += STORING_BLOCKS * THREADS)
        ((uint4*)item.dst)[i] = from[i];
}
LAUNCHED_BY_BLOCKS(store_jpegs, STORING_BLOCKS);
