// Sums of neighbours by 3 × 3 small whole weights, over a divisor. Borders replicate.

// Sums to levels: what is cut off, and 2**16 over the divisor, rounded up.
template <int C> struct Divided {
    u32 added, multiplier;
    int most;

    __device__ __forceinline__ explicit Divided(const int* of) : added(of[0]), multiplier(of[1]), most(of[2]) {}

    __device__ __forceinline__ u32 first() const { return added; }

    __device__ __forceinline__ u32 operator()(const u32* sums, u32 word, int, int) const
    {
        u32 level[4];
        for (int k = 0; k < 4; ++k) level[k] = __vimin_s32_relu((int)sums[k], most) * multiplier;
        u32 low = __byte_perm(level[0], level[1], 0x0062), high = __byte_perm(level[2], level[3], 0x0062);
        return C == 4 ? __byte_perm(__byte_perm(low, high, 0x5410), word, 0x7210) : __byte_perm(low, high, 0x5410);
    }
};

extern "C" __global__ void __launch_bounds__(256, 4)
around_whole(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 words[NINE_WORDS / 4], room[EIGHTS / 4];
    int block;
    Item item = owner(items, starts, n, block);
    const int* of = nine_of(item).parameters;
    u32 *w = (u32*)words, *r = (u32*)room;
    if (item.channels == 1) nine_tile<1>(item, block, Divided<1>(of), w, r);
    else if (item.channels == 3) nine_tile<3>(item, block, Divided<3>(of), w, r);
    else nine_tile<4>(item, block, Divided<4>(of), w, r);
}
