// ImageEnhance.Sharpness: a blend with SMOOTH, which is (sum of 3 × 3 + 4 · centre) / 13, half-up.
// No such quotient is near a half, so integers give what Pillow's floats do.

template <int C> struct Sharpened {
    float factor;
    int width, height;

    // Added to 2**23 as a float.
    __device__ __forceinline__ u32 first() const { return 0x4B000000; }

    // A sample, not clipped, in the lower half. A sum is 13 times what is smooth; 1290555 is 2**24 / 13,
    // and no quotient is nearer to a half than 1 / 26.
    __device__ __forceinline__ u32 sharpened(u32 sum, u32 word, int k) const
    {
        float smooth = __fmaf_rz(__uint_as_float(sum), 1290555.0f / 16777216, 8388608.0f - 645277.0f);
        float level = __uint_as_float(__byte_perm(word, 0x4B000000, 0x7440 + k));
        float mixed = __fadd_rn(__fmul_rn(__fsub_rn(level, smooth), factor), __fsub_rn(smooth, 8388608.0f));
        return __float_as_uint(__fadd_rz(mixed, 12582912.0f));
    }

    // Which bits stay as they are: alpha, and the image's outermost pixels.
    __device__ __forceinline__ u32 kept(int at, int y) const
    {
        if (y == 0 || y == height - 1) return ~0u;
        u32 kept = C == 4 ? 0xFF000000u : 0;
        int end = (width - 1) * C;
        if (at >= C && at + 3 < end) return kept;
        for (int k = 0; k < 4; ++k)
            if (at + k < C || at + k >= end) kept |= 255u << 8 * k;
        return kept;
    }

    __device__ __forceinline__ u32 operator()(const u32* sums, u32 word, int at, int y) const
    {
        u32 level[4];
        for (int k = 0; k < 4; ++k) level[k] = sharpened(sums[k], word, k);
        u32 low = __vimin_s16x2_relu(__byte_perm(level[0], level[1], 0x5410), HALVES);
        u32 high = __vimin_s16x2_relu(__byte_perm(level[2], level[3], 0x5410), HALVES);
        u32 made = __byte_perm(low, high, 0x6420), mask = kept(at, y);
        return (word & mask) | (made & ~mask);
    }
};

template <int C> __device__ __forceinline__ void sharpen_tile(const Item& item, int block, u32* words, u32* room)
{
    float factor = __int_as_float(nine_of(item).parameters[0]);
    nine_tile<C>(item, block, Sharpened<C>{factor, item.width, item.height}, words, room);
}

extern "C" __global__ void __launch_bounds__(256, 4)
sharpen(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 words[NINE_WORDS / 4], room[EIGHTS / 4];
    int block;
    Item item = owner(items, starts, n, block);
    if (item.channels == 1) sharpen_tile<1>(item, block, (u32*)words, (u32*)room);
    else if (item.channels == 3) sharpen_tile<3>(item, block, (u32*)words, (u32*)room);
    else sharpen_tile<4>(item, block, (u32*)words, (u32*)room);
}
