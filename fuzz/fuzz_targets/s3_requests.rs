#![no_main]
nicstripe_fuzz::target!(nicstripe_s3::fuzz::s3_requests);
