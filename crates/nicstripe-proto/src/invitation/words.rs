//! Words of invitation codes: two lists of 256, so that a word stands for one byte.
//!
//! All words have 3 to 9 letters. No two of the 512 sound alike or differ in one letter, and none is
//! in both lists. The tests check this. The lists are part of the protocol: both ends must have the
//! same words, in any order.

/// First words, in alphabetical order.
#[rustfmt::skip]
pub(super) const FIRST: [&str; 256] = [
    "active", "agile", "alpine", "amber", "arched", "arctic", "atomic", "august", "autumn",
    "awake", "bamboo", "banded", "basic", "blurry", "brassy", "bronze", "bubbly", "busy", "calm",
    "canvas", "casual", "chilly", "chosen", "civic", "clever", "cobalt", "copper", "cosmic",
    "cotton", "crispy", "crossover", "crystal", "cubic", "curly", "daily", "dapper", "daring",
    "deluxe", "denim", "diagonal", "dotted", "double", "dreamy", "dusty", "eager", "empty",
    "enamel", "endless", "eternal", "evident", "exact", "exotic", "expert", "factual", "famous",
    "fancy", "festive", "finite", "fireproof", "flannel", "floral", "fluent", "fluffy", "folded",
    "formal", "fresh", "frosty", "fruity", "fuzzy", "gallant", "genuine", "glassy", "global",
    "golden", "grainy", "guided", "handy", "hazel", "helpful", "hidden", "hollow", "honest",
    "hopeful", "humble", "hungry", "hybrid", "icy", "immense", "indoor", "inland", "inward",
    "ivory", "jagged", "jovial", "juicy", "jumbo", "kindly", "knitted", "lanky", "lasting",
    "leafy", "lemony", "level", "liberal", "likable", "limber", "linear", "liquid", "local",
    "lucid", "magical", "maple", "marine", "massive", "maximum", "meadow", "mellow", "mighty",
    "minty", "modern", "modest", "molten", "monthly", "musical", "mystic", "narrow", "neutral",
    "nimble", "noble", "nomadic", "notable", "numeric", "oaken", "obvious", "oceanic", "olive",
    "opaque", "optical", "orange", "orbital", "organic", "outdoor", "oval", "papery", "pastel",
    "patient", "pebbled", "perfect", "pivotal", "placid", "plain", "plucky", "pocket", "poetic",
    "polished", "portable", "private", "prompt", "proper", "purple", "pyramid", "quaint", "quick",
    "quirky", "radiant", "random", "rapid", "ready", "rebuilt", "recent", "reddish", "reflex",
    "relaxed", "remote", "robust", "rotary", "rounded", "royal", "rubber", "rugged", "rustic",
    "saffron", "salty", "satin", "savory", "scarlet", "scenic", "seaside", "secular", "seismic",
    "serene", "shady", "shiny", "silent", "silky", "silver", "simple", "sleepy", "smooth",
    "snowy", "soft", "solar", "spatial", "special", "spicy", "spiral", "square", "stable",
    "starry", "stellar", "sticky", "striped", "sturdy", "sunlit", "supreme", "surplus", "tartan",
    "tender", "textile", "thermal", "thirsty", "timely", "tinted", "tiny", "topical", "unique",
    "upbeat", "urban", "useful", "usual", "vacant", "vanilla", "vast", "velvet", "verbal",
    "vibrant", "vintage", "virtual", "visible", "vivid", "walnut", "warm", "wavy", "wealthy",
    "western", "wicker", "wide", "willing", "windy", "wistful", "wooden", "worthy", "woven",
    "yearly", "zealous", "zigzag",
];

/// Second words, in alphabetical order.
#[rustfmt::skip]
pub(super) const SECOND: [&str; 256] = [
    "abacus", "acorn", "actor", "airport", "album", "alcove", "almond", "anchor", "antenna",
    "anvil", "apple", "apron", "archway", "atlas", "avocado", "bagel", "bakery", "balcony",
    "banana", "banjo", "banner", "barn", "basket", "bathtub", "bazaar", "beacon", "beaver",
    "bedroom", "beetle", "bicycle", "binder", "blanket", "blossom", "bobsled", "boulder",
    "buffalo", "cable", "cactus", "camel", "camera", "carpet", "carrot", "cashew", "catalog",
    "cello", "chapel", "cherry", "chimney", "clock", "cobbler", "collar", "comet", "cottage",
    "cougar", "cracker", "cricket", "crocus", "cruiser", "custard", "cyclone", "desert",
    "diamond", "dolphin", "domino", "donkey", "doorway", "drummer", "dungeon", "eclipse", "elbow",
    "emblem", "engine", "eraser", "evening", "falcon", "feather", "ferry", "fiddle", "firefly",
    "fossil", "fridge", "furnace", "galaxy", "garlic", "gazebo", "geyser", "ginger", "giraffe",
    "glacier", "glider", "guitar", "hammer", "hamster", "harbor", "harness", "hatchet", "helmet",
    "heron", "highway", "hippo", "horizon", "iceberg", "insect", "jaguar", "jasmine", "jigsaw",
    "journal", "jungle", "juniper", "kernel", "kettle", "kingdom", "kitchen", "koala", "lagoon",
    "lantern", "laptop", "lasagna", "laundry", "leopard", "lettuce", "library", "lizard", "llama",
    "lobster", "lullaby", "machine", "magpie", "mailbox", "mango", "mansion", "marble", "market",
    "melon", "memory", "mermaid", "microbe", "mitten", "mosaic", "museum", "napkin", "nectar",
    "needle", "novel", "nugget", "nutmeg", "oatmeal", "obelisk", "octopus", "omelet", "onion",
    "opera", "orchard", "oregano", "origami", "ostrich", "oxygen", "oyster", "palace", "pancake",
    "papaya", "parsley", "pasture", "peach", "pencil", "penguin", "perfume", "picnic", "plum",
    "poem", "popcorn", "potato", "pretzel", "prism", "pudding", "pumpkin", "puzzle", "quartz",
    "raccoon", "raft", "raisin", "rattle", "raven", "recipe", "reptile", "rhubarb", "ribbon",
    "river", "rooftop", "rooster", "salmon", "sandal", "satchel", "saucer", "sausage", "sawmill",
    "scarf", "scooter", "seagull", "shark", "shelter", "sherbet", "sketch", "sledge", "slipper",
    "soldier", "sparrow", "spider", "spinach", "sponge", "stadium", "stove", "switch", "teacup",
    "teapot", "temple", "tennis", "terrace", "thermos", "ticket", "tiger", "toaster", "tomato",
    "topaz", "tornado", "toucan", "tractor", "trailer", "trophy", "trumpet", "tugboat", "tulip",
    "turnip", "turtle", "tuxedo", "typhoon", "unicorn", "vacuum", "valley", "vampire", "vehicle",
    "veranda", "village", "vinegar", "violin", "voyage", "vulture", "waffle", "wagon", "walrus",
    "weasel", "whale", "whistle", "wolf", "wombat", "yogurt",
];
