// What all kernels share: the rows of a launch, tiles, replicated borders, loads and stores of
// pixels by words, and the arithmetic of colours. NVRTC has no system headers, so none is included.
// A kernel runs in blocks of 256 threads. It may read, but not write, the rest of the aligned word
// in which an image ends.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int THREADS = 256;
constexpr u32 HALVES = 0x00FF00FF;  // the low byte of both halves of a word

// How the host launches a kernel: with a block for every tile of `width` by `height` pixels, for
// every `samples` samples of the image as one line, or with a fixed number of blocks for an image
// of any size. The host reads these lines (items.py), so their numbers are integers, constants
// that are declared at the beginning of a line, and sums and products of both. To a compiler they
// are constants, which a test compares with what the host read.
#define LAUNCHED_BY_TILES(kernel, width, height)                                                   \
    enum { launch_width_##kernel = (width), launch_height_##kernel = (height) }
#define LAUNCHED_BY_LINES(kernel, samples) enum { launch_line_##kernel = (samples) }
#define LAUNCHED_BY_BLOCKS(kernel, blocks) enum { launch_blocks_##kernel = (blocks) }

// One image of a launch: `ITEM` of workers/kernels/items.py, with which tests compare it. `data` is
// the filter's own.
struct Item {
    u64 src, dst, scratch, data;
    int width, height, channels, step;
};

// The part of an image that one block computes, in pixels.
struct Tile {
    int x, y, width, height;
};

// Return the image that this block works on; `block` becomes its number among the image's blocks.
// Every thread of the block has to call it. Every other pass begins with the last block, whose data
// the pass before has left in the cache.
__device__ __forceinline__ Item find_item(const Item* items, const u32* starts, int n, int& block)
{
    u32 index = items->step % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    int at = 0;
    for (int first = 0; first < n; first += THREADS) {
        int i = first + threadIdx.x;
        at += __syncthreads_count(i < n && starts[i + 1] <= index);
    }
    block = index - starts[at];
    return items[at];
}

__device__ __forceinline__ Tile tile_of(const Item& item, int block, int width, int height)
{
    int across = (item.width + width - 1) / width;
    int x = block % across * width, y = block / across * height;
    return {x, y, min(width, item.width - x), min(height, item.height - y)};
}

// Return an address of an item as a pointer. The compiler is told that it is one of global memory,
// which saves a look-up at every access.
template <class T> __device__ __forceinline__ T* global(u64 address)
{
    T* pointer = (T*)address;
    __builtin_assume(__isGlobal(pointer));
    return pointer;
}

__device__ __forceinline__ int clamped(int at, int size) { return min(max(at, 0), size - 1); }

// Return the place that stands for `at` where an image is mirrored at its ends without repeating
// the edge, as often as needed.
__device__ __forceinline__ int mirrored(int at, int size)
{
    if (at >= 0 && at < size) return at;
    if (size == 1) return 0;
    at = max(at, -at) % (2 * size - 2);
    return at < size ? at : 2 * size - 2 - at;
}

// Return row y of the source; rows beyond its ends replicate. No image has 2**32 samples.
__device__ __forceinline__ const u8* source_row(const Item& item, int y)
{
    return global<const u8>(item.src) +
        (u32)clamped(y, item.height) * (u32)(item.width * item.channels);
}

__device__ __forceinline__ u32 byte_of(u32 word, int k) { return word >> (8 * k) & 255; }

__device__ __forceinline__ u32 packed(u32 a, u32 b, u32 c, u32 d)
{
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

__device__ __forceinline__ void load16(const u8* from, u32* words)
{
    uint4 v = *(const uint4*)from;
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
}

__device__ __forceinline__ void store16(u8* to, const u32* words)
{
    *(uint4*)to = make_uint4(words[0], words[1], words[2], words[3]);
}

// Load four bytes from any address.
__device__ __forceinline__ u32 word_at(const u8* bytes)
{
    u32 over = (u64)bytes & 3;
    const u32* words = (const u32*)(bytes - over);
    return over ? __funnelshift_r(words[0], words[1], 8 * over) : words[0];
}

// Load four samples of a row, `at` to at + 3, of which some lie beyond an end. This is a function
// of its own because it is rarely needed but used in many places: inlining it doubled the
// compiler's time.
static __device__ __noinline__ u32 replicated4(const u8* row, int bytes, int channels, int at)
{
    u32 word = 0;
    for (int k = 0; k < 4; ++k) {
        int s = at + k, channel = s % channels;
        if (s >= bytes) s = bytes - channels + channel;
        else if (s < 0) s = channel < 0 ? channel + channels : channel;
        word |= (u32)row[s] << (8 * k);
    }
    return word;
}

// Load four samples of a row of `bytes` samples, from sample `at` on; pixels beyond its ends
// replicate.
__device__ __forceinline__ u32 samples4(const u8* row, int bytes, int channels, int at)
{
    if (at >= 0 && at + 4 <= bytes) return word_at(row + at);
    return replicated4(row, bytes, channels, at);
}

// Load sixteen samples likewise, by one vector where the row is aligned there.
__device__ __forceinline__ void samples16(
    const u8* row, int bytes, int channels, int at, u32* words)
{
    if (at < 0 || at + 16 > bytes) {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = samples4(row, bytes, channels, at + 4 * i);
    } else if (((u64)(row + at) & 15) == 0) {
        load16(row + at, words);
    } else {
        for (int i = 0; i < 4; ++i) words[i] = word_at(row + at + 4 * i);
    }
}

// Turn the words of four interleaved pixels into one word of four samples for each channel.
template <int C> __device__ __forceinline__ void deinterleave(const u32* in, u32* plane)
{
    if constexpr (C == 1) {
        plane[0] = in[0];
    } else if constexpr (C == 3) {
        plane[0] = __byte_perm(__byte_perm(in[0], in[1], 0x0630), in[2], 0x5210);
        plane[1] = __byte_perm(__byte_perm(in[0], in[1], 0x0741), in[2], 0x6210);
        plane[2] = __byte_perm(__byte_perm(in[0], in[1], 0x0052), in[2], 0x7410);
    } else {
        u32 a = __byte_perm(in[0], in[1], 0x5140), b = __byte_perm(in[2], in[3], 0x5140);
        u32 c = __byte_perm(in[0], in[1], 0x7362), d = __byte_perm(in[2], in[3], 0x7362);
        plane[0] = __byte_perm(a, b, 0x5410);
        plane[1] = __byte_perm(a, b, 0x7632);
        plane[2] = __byte_perm(c, d, 0x5410);
        plane[3] = __byte_perm(c, d, 0x7632);
    }
}

// Store bytes at … at + 3 of a line that has an end there. The function is separate for the reason
// given at `replicated4`.
static __device__ __noinline__ void store_end(u8* line, const u8* from, int at, int bytes)
{
    for (int k = max(at, 0); k < min(at + 4, bytes); ++k) line[k] = from[k];
}

// Store those of the bytes at … at + 3 that are below `bytes`, from shared memory.
__device__ __forceinline__ void store4(u8* line, const u8* from, int at, int bytes)
{
    if (at >= 0 && at + 4 <= bytes) *(u32*)(line + at) = word_at(from + at);
    else if (at < bytes) store_end(line, from, at, bytes);
}

// Store a tile of results, PITCH bytes a row, to the image, by aligned words wherever rows begin.
// PITCH and the address in shared memory are multiples of 16.
template <int PITCH>
__device__ __forceinline__ void store_tile(const Item& item, const Tile& tile, const u8* from)
{
    constexpr int WORDS = PITCH / 4 + 1, VECTORS = PITCH / 16;
    u32 stride = item.width * item.channels;
    u8* first = global<u8>(item.dst) + (tile.y * stride + tile.x * item.channels);
    if (stride % 16 == 0) {
        for (int i = threadIdx.x; i < tile.height * VECTORS; i += THREADS)
            if (i % VECTORS * 16 < tile.width * item.channels)
                *(uint4*)(first + (i / VECTORS * stride + i % VECTORS * 16)) =
                    *(const uint4*)(from + i * 16);
        return;
    }
    for (int i = threadIdx.x; i < tile.height * WORDS; i += THREADS) {
        u8* line = first + i / WORDS * stride;
        int at = i % WORDS * 4 - (int)((u64)line & 3);
        store4(line, from + i / WORDS * PITCH, at, tile.width * item.channels);
    }
}

// Store a tile of WIDTH pixels a row, for any number of channels.
template <int WIDTH>
__device__ __forceinline__ void store_tile_of(const Item& item, const Tile& tile, const u8* from)
{
    if (item.channels == 1) store_tile<WIDTH>(item, tile, from);
    else if (item.channels == 3) store_tile<WIDTH * 3>(item, tile, from);
    else store_tile<WIDTH * 4>(item, tile, from);
}

__device__ __forceinline__ u32 luma(u32 red, u32 green, u32 blue)
{
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16;
}

// Return an integer below 2**23 as a float. This is exact, and cheaper than a conversion.
__device__ __forceinline__ float as_float(u32 whole)
{
    return __uint_as_float(0x4B000000 | whole) - 8388608.0f;
}

// Return byte k of a word as a float, in two instructions.
__device__ __forceinline__ float level_of(u32 word, int k)
{
    return __uint_as_float(__byte_perm(word, 0x4B000000, 0x7440 | k)) - 8388608.0f;
}

// Return Pillow's Image.blend: clip(trunc(base + factor · (level - base))), each step rounded.
__device__ __forceinline__ u32 blend(float base, float level, float factor)
{
    float mixed = __fadd_rn(__fmul_rn(__fsub_rn(level, base), factor), base);
    mixed = fminf(fmaxf(mixed, 0.0f), 255.0f);
    return __float_as_uint(__fadd_rz(mixed, 8388608.0f)) & 255;
}

// Return floor(n / d) where it is below 256. The quotient of floats is at most one off.
__device__ __forceinline__ u32 quotient(u64 n, u64 d)
{
    u32 q = (u32)__fdiv_rn(__ull2float_rn(n), __ull2float_rn(d));
    if (q * d > n) return q - 1;
    return n - q * d >= d ? q + 1 : q;
}
