// Filters of one pixel that mix its channels: sepia, and two tones.

struct Sepia {
    u32 weights[9];  // Q16: of red, green and blue in red, then in green, then in blue

    __device__ __forceinline__ void operator()(const u32* colour, u32* made) const
    {
        for (int c = 0; c < 3; ++c) {
            u32 sum = 1 << 15;
            for (int k = 0; k < 3; ++k) sum += weights[3 * c + k] * colour[k];
            made[c] = min(sum >> 16, 255u);
        }
    }
};

// Grey becomes RGB: four pixels a thread and turn.
__device__ __forceinline__ void sepia_grey(const Item& item, int block, const Sepia& sepia)
{
    u32 total = samples_of(item), end = min(total, (block + 1) * LINE);
    const u8* src = global<const u8>(item.src);
    u8* dst = global<u8>(item.dst);
    for (u32 at = block * LINE + 4 * threadIdx.x; at < end; at += 4 * THREADS) {
        u32 word = *(const u32*)(src + at), bytes[12];
        for (int k = 0; k < 4; ++k) {
            u32 level = byte_of(word, k), colour[3] = {level, level, level};
            sepia(colour, bytes + 3 * k);
        }
        if (at + 4 <= total) {
            u32* to = (u32*)(dst + 3 * at);
            for (int i = 0; i < 12; i += 4)
                to[i / 4] = packed(bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]);
        } else {
#pragma unroll
            for (int i = 0; i < 12; ++i)
                if (i < 3 * (int)(total - at)) dst[3 * at + i] = (u8)bytes[i];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
sepia(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = owner(items, starts, n, block);
    Sepia of = *global<const Sepia>(item.data);
    if (item.channels == 1) sepia_grey(item, block, of);
    else if (item.channels == 3) map_pixels<3>(item, block, of);
    else map_pixels<4>(item, block, of);
}

// What is lighter than a value, and the rest, which becomes black.
struct TwoTones {
    u32 value, light;
};

template <int C> struct Parted {
    TwoTones tones;

    __device__ __forceinline__ void operator()(const u32* colour, u32* made) const
    {
        u32 grey = C == 1 ? colour[0] : luma(colour[0], colour[1], colour[2]);
        made[0] = made[1] = made[2] = grey > tones.value ? tones.light : 0;
    }
};

extern "C" __global__ void __launch_bounds__(256)
two_tones(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = owner(items, starts, n, block);
    TwoTones tones = *global<const TwoTones>(item.data);
    if (item.channels == 1) map_pixels<1>(item, block, Parted<1>{tones});
    else if (item.channels == 3) map_pixels<3>(item, block, Parted<3>{tones});
    else map_pixels<4>(item, block, Parted<4>{tones});
}
