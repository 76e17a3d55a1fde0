// Gradients of the luma by the 3 × 3 Sobel operator, through a table of tones.

struct Sobel {
    int axis;  // 0 x, 1 y, 2 magnitude
    int reserved[3];
    u8 tones[1456];  // of every length a gradient can have, up to 1442
};

constexpr int SOBEL_WIDTH = 128, SOBEL_HEIGHT = 32, SOBEL_WORDS = SOBEL_WIDTH / 4 + 2, SOBEL_ROWS = 4;
constexpr u32 HALVES = 0x00FF00FF;

// The lumas of four pixels as they lie in memory. Weights are bytes, upper and lower ones apart.
template <int C> __device__ __forceinline__ u32 lumas4(const u32* words)
{
    if constexpr (C == 1) {
        return words[0];
    } else {
        u32 pixel[4] = {words[0], words[1], words[C - 2], words[C - 1]}, sum[4];
        if constexpr (C == 3) {
            pixel[1] = __funnelshift_r(words[0], words[1], 24);
            pixel[2] = __funnelshift_r(words[1], words[2], 16);
            pixel[3] = words[2] >> 8;
        }
        for (int k = 0; k < 4; ++k)
            sum[k] = 256 * __dp4a(pixel[k], 0x001D964Cu, 0u) + __dp4a(pixel[k], 0x002F468Bu, 32768u);
        return __byte_perm(__byte_perm(sum[0], sum[1], 0x0062), __byte_perm(sum[2], sum[3], 0x0062), 0x5410);
    }
}

// The lumas of pixels x … x+3 of a row; pixels beyond its ends replicate.
template <int C> __device__ __forceinline__ u32 row_lumas4(const u8* row, int width, int x)
{
    u32 words[C];
    if (x >= 0 && x + 4 <= width) {
        inner_pixels4<C>(row, x, words);
    } else {
        u32 plane[C];
        for (int c = 0; c < C; ++c) plane[c] = replicated_plane4(row + c, width, C, x);
        interleave<C>(plane, words);
    }
    return lumas4<C>(words);
}

// The lumas of a tile, a pixel more on top and bottom, four more on either side; INSIDE as of the
// planes in separable.cu.
template <int C, bool INSIDE>
__device__ __forceinline__ void stage_lumas(const Item& item, const Tile& tile, u32* grey)
{
    int end = (tile.height + 2) * SOBEL_WORDS;
#pragma unroll(INSIDE ? 5 : 1)
    for (int i = threadIdx.x; i < end; i += THREADS) {
        int x = tile.x + i % SOBEL_WORDS * 4 - 4, y = tile.y + i / SOBEL_WORDS - 1;
        const u8* row = source_row(item, y);
        if constexpr (INSIDE) {
            u32 words[C];
            for (int c = 0; c < C; ++c) words[c] = ((const u32*)(row + x * C))[c];
            grey[i] = lumas4<C>(words);
        } else if (x <= tile.x + tile.width) {
            grey[i] = row_lumas4<C>(row, item.width, x);
        }
    }
}

// Four lumas of a row, the one before and the one after: two a word, what is left of the even ones,
// these, the odd ones, what is right of those; and both smoothed along the row.
struct Lumas {
    u32 left, even, odd, right, smooth_even, smooth_odd;

    __device__ __forceinline__ explicit Lumas(const u32* words)
    {
        left = __funnelshift_r(words[0], words[1], 24) & HALVES;
        even = words[1] & HALVES, odd = words[1] >> 8 & HALVES;
        right = __funnelshift_r(words[1], words[2], 16) & HALVES;
        smooth_even = left + 2 * even + odd, smooth_odd = even + 2 * odd + right;
    }
};

// What a gradient counts: along x and y, or only one of them.
struct Axes {
    float x, y;

    // One of two halves of a word that are 1024 too much, exact.
    __device__ __forceinline__ static float half(u32 word, u32 which, float factor)
    {
        float moved = __uint_as_float(__byte_perm(word, 0x4B000000, which));
        return __fmaf_rn(moved, factor, -8389632.0f * factor);
    }

    // rint of the root: never half-way, for no square of an integer and a half is that near. The
    // root is within 0.51 units of its last place: one of Newton's steps after 22 bits.
    __device__ __forceinline__ u32 length(u32 dx, u32 dy, u32 which) const
    {
        float across = half(dx, which, x), down = half(dy, which, y);
        float square = __fmaf_rn(across, across, __fmul_rn(down, down));
        float inverse = rsqrtf(fmaxf(square, 0.5f)), root = __fmul_rn(square, inverse);
        root = __fmaf_rn(__fmaf_rn(-root, root, square), __fmul_rn(0.5f, inverse), root);
        return __float_as_uint(__fadd_rn(root, 8388608.0f)) & 2047;
    }
};

// The tones of four pixels from three rows of lumas.
__device__ __forceinline__ u32 edges4(const Lumas* rows, const Axes& axes, const u8* tones)
{
    constexpr u32 MORE = 0x04000400, LOW = 0x7610, HIGH = 0x7632;
    u32 left = rows[0].left + 2 * rows[1].left + rows[2].left;
    u32 even = rows[0].even + 2 * rows[1].even + rows[2].even;
    u32 odd = rows[0].odd + 2 * rows[1].odd + rows[2].odd;
    u32 right = rows[0].right + 2 * rows[1].right + rows[2].right;
    u32 x[2] = {MORE + odd - left, MORE + right - even}, tone[4];
    u32 y[2] = {MORE + rows[2].smooth_even - rows[0].smooth_even,
                MORE + rows[2].smooth_odd - rows[0].smooth_odd};
    for (int k = 0; k < 4; ++k) tone[k] = tones[axes.length(x[k % 2], y[k % 2], k < 2 ? LOW : HIGH)];
    return packed(tone[0], tone[1], tone[2], tone[3]);
}

// Four tones as four pixels.
template <int C>
__device__ __forceinline__ void spread4(const Item& item, int x, int y, u32 tones, u32* out)
{
    if constexpr (C == 1) {
        out[0] = tones;
    } else if constexpr (C == 3) {
        out[0] = __byte_perm(tones, 0, 0x1000);
        out[1] = __byte_perm(tones, 0, 0x2211);
        out[2] = __byte_perm(tones, 0, 0x3332);
    } else {
        u32 plane[C];
        pixels4<C>(source_row(item, y), item.width, x, plane);
        for (int k = 0; k < 4; ++k) out[k] = __byte_perm(tones, plane[3], 0x4000 + 0x1111 * k);
    }
}

template <int C>
__device__ __forceinline__ void sobel_tile(
    const Item& item, const Tile& tile, u32* grey, const u8* tones, u32* out)
{
    bool within = tile.x >= 4 && tile.x + SOBEL_WIDTH + 4 <= item.width;
    if (within && item.width * C % 4 == 0) stage_lumas<C, true>(item, tile, grey);
    else stage_lumas<C, false>(item, tile, grey);
    __syncthreads();
    int axis = global<const Sobel>(item.data)->axis;
    Axes axes = {axis == 1 ? 0.0f : 1.0f, axis == 0 ? 0.0f : 1.0f};
    int group = threadIdx.x % 32, first = threadIdx.x / 32 * SOBEL_ROWS;
    const u32* words = grey + first * SOBEL_WORDS + group;
    Lumas rows[3] = {Lumas(words), Lumas(words + SOBEL_WORDS), Lumas(words)};
#pragma unroll
    for (int i = 0; i < SOBEL_ROWS; ++i) {
        rows[2] = Lumas(words + (i + 2) * SOBEL_WORDS);
        u32 edges = edges4(rows, axes, tones);
        rows[0] = rows[1], rows[1] = rows[2];
        if (4 * group >= tile.width || first + i >= tile.height) continue;
        int x = tile.x + 4 * group, y = tile.y + first + i;
        spread4<C>(item, x, y, edges, out + ((first + i) * 32 + group) * C);
    }
    __syncthreads();
    store_tile<SOBEL_WIDTH * C>(item, tile, (const u8*)out);
}

extern "C" __global__ void __launch_bounds__(256, 5)
sobel(const Item* items, const u32* starts, int n)
{
    __shared__ u32 grey[(SOBEL_HEIGHT + 2) * SOBEL_WORDS];
    __shared__ uint4 out[SOBEL_WIDTH * SOBEL_HEIGHT / 4 + 1];
    __shared__ uint4 tones[91];
    int block;
    Item item = owner(items, starts, n, block);
    Tile tile = tile_of(item, block, SOBEL_WIDTH, SOBEL_HEIGHT);
    const uint4* from = (const uint4*)global<const Sobel>(item.data)->tones;
    if (threadIdx.x < 91) tones[threadIdx.x] = from[threadIdx.x];
    if (item.channels == 1) sobel_tile<1>(item, tile, grey, (const u8*)tones, (u32*)out);
    else if (item.channels == 3) sobel_tile<3>(item, tile, grey, (const u8*)tones, (u32*)out);
    else sobel_tile<4>(item, tile, grey, (const u8*)tones, (u32*)out);
}
