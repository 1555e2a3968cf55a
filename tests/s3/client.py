"""Requests of boto3 to a gateway. Run by `cargo test --test s3` with the name of a function."""

import hashlib
import io
import os
import sys
import threading
import urllib.error
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

MIB = 1 << 20


def client(**more):
    config = Config(retries={"max_attempts": 1}, **more.pop("config", {}))
    return boto3.client("s3", config=config, **more)


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, f"{found}, not {code}"
        return
    raise AssertionError(f"not refused with {code}: {arguments}")


def operations():
    s3 = client()
    s3.create_bucket(Bucket="bucket")
    refused("BucketAlreadyOwnedByYou", s3.create_bucket, Bucket="bucket")
    assert [one["Name"] for one in s3.list_buckets()["Buckets"]] == ["bucket"]
    s3.head_bucket(Bucket="bucket")
    s3.get_bucket_location(Bucket="bucket")
    assert "Status" not in s3.get_bucket_versioning(Bucket="bucket")
    objects(s3)
    checksums(s3)
    conditions(s3)
    lists(s3)
    urls(s3)
    s3.create_bucket(Bucket="kept")
    copied = s3.copy_object(
        Bucket="kept", Key="a/b.txt", CopySource={"Bucket": "bucket", "Key": "an object/ä&?+#%"}
    )
    assert copied["CopyObjectResult"]["ETag"]
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket="bucket")["Contents"]]
    gone = s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": key} for key in keys]})
    assert len(gone["Deleted"]) == len(keys) and "Errors" not in gone, gone
    s3.delete_bucket(Bucket="bucket")
    refused("NoSuchBucket", s3.list_objects_v2, Bucket="bucket")


def objects(s3):
    key = "an object/ä&?+#%"
    put = s3.put_object(
        Bucket="bucket", Key=key, Body=b"content", ContentType="text/plain",
        CacheControl="no-cache", Metadata={"one": "1", "two": "a b"},
    )
    assert put["ETag"] == f'"{hashlib.md5(b"content").hexdigest()}"'
    got = s3.get_object(Bucket="bucket", Key=key)
    assert got["Body"].read() == b"content"
    assert got["ContentType"] == "text/plain" and got["CacheControl"] == "no-cache"
    assert got["Metadata"] == {"one": "1", "two": "a b"}
    assert got["ETag"] == put["ETag"]
    part = s3.get_object(Bucket="bucket", Key=key, Range="bytes=1-3")
    assert part["Body"].read() == b"ont" and part["ContentRange"] == "bytes 1-3/7"
    assert s3.head_object(Bucket="bucket", Key=key)["ContentLength"] == 7
    assert s3.get_object_tagging(Bucket="bucket", Key=key)["TagSet"] == []
    assert s3.get_object_acl(Bucket="bucket", Key=key)["Grants"]
    refused("404", s3.head_object, Bucket="bucket", Key="none")
    refused("NoSuchKey", s3.get_object, Bucket="bucket", Key="none")
    refused("InvalidRange", s3.get_object, Bucket="bucket", Key=key, Range="bytes=7-")
    refused("InvalidArgument", s3.put_object, Bucket="bucket", Key="a//b", Body=b"")
    refused("AccessControlListNotSupported", s3.put_object, Bucket="bucket", Key="x", ACL="public-read")
    # The response comes before the body that boto3 waits to send, and must be the only one.
    for _ in range(2):
        s3.put_object(Bucket="bucket", Key="empty", Body=io.BytesIO(b""))
        s3.put_object(Bucket="bucket", Key="not empty", Body=io.BytesIO(b"1"))
    assert s3.get_object(Bucket="bucket", Key="not empty")["Body"].read() == b"1"
    s3.put_object(Bucket="bucket", Key="folder/")
    s3.delete_object(Bucket="bucket", Key="folder/")


def checksums(s3):
    for algorithm in ["CRC32", "SHA1", "SHA256"]:
        put = s3.put_object(Bucket="bucket", Key="sum", Body=b"123456789", ChecksumAlgorithm=algorithm)
        assert put[f"Checksum{algorithm}"], put
    refused("BadDigest", s3.put_object, Bucket="bucket", Key="new", Body=b"1", ChecksumCRC32="AAAAAA==")
    refused("BadDigest", s3.put_object, Bucket="bucket", Key="new", Body=b"1", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA==")
    refused("404", s3.head_object, Bucket="bucket", Key="new")


def conditions(s3):
    etag = s3.put_object(Bucket="bucket", Key="c", Body=b"1")["ETag"]
    refused("PreconditionFailed", s3.put_object, Bucket="bucket", Key="c", Body=b"2", IfNoneMatch="*")
    refused("PreconditionFailed", s3.put_object, Bucket="bucket", Key="c", Body=b"2", IfMatch='"x"')
    refused("304", s3.get_object, Bucket="bucket", Key="c", IfNoneMatch=etag)
    refused("PreconditionFailed", s3.get_object, Bucket="bucket", Key="c", IfMatch='"x"')
    s3.put_object(Bucket="bucket", Key="c", Body=b"3", IfMatch=etag)
    assert s3.get_object(Bucket="bucket", Key="c")["Body"].read() == b"3"


def lists(s3):
    keys = sorted(f"list/{a}/{b}" for a in ("x", "x-y", "z") for b in range(4))
    for key in keys:
        s3.put_object(Bucket="bucket", Key=key, Body=b"")
    for operation in ["list_objects", "list_objects_v2"]:
        pages = s3.get_paginator(operation).paginate(
            Bucket="bucket", Prefix="list/", PaginationConfig={"PageSize": 5}
        )
        found = [one["Key"] for page in pages for one in page.get("Contents", [])]
        assert found == keys, found
        pages = s3.get_paginator(operation).paginate(
            Bucket="bucket", Prefix="list/", Delimiter="/", PaginationConfig={"PageSize": 1}
        )
        found = [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", [])]
        assert found == ["list/x-y/", "list/x/", "list/z/"], found


def urls(s3):
    url = s3.generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "by url"}, ExpiresIn=60)
    urllib.request.urlopen(urllib.request.Request(url, data=b"by url", method="PUT"))
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "by url"}, ExpiresIn=60)
    assert urllib.request.urlopen(url).read() == b"by url"
    try:
        urllib.request.urlopen(url.replace("by%20url", "c"))
    except urllib.error.HTTPError as error:
        assert error.code == 403
    else:
        raise AssertionError("a URL is good for another object")


def large():
    s3 = client()
    s3.create_bucket(Bucket="large")
    bytes_ = bytes(range(251)) * (64 * MIB // 251)
    config = TransferConfig(multipart_chunksize=8 * MIB, max_concurrency=8)

    def transfer(index):
        s3.upload_fileobj(io.BytesIO(bytes_), "large", f"d/{index}", Config=config)
        into = io.BytesIO()
        s3.download_fileobj("large", f"d/{index}", into, Config=config)
        assert into.getvalue() == bytes_
        done.append(index)

    done = []
    threads = [threading.Thread(target=transfer, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 4
    parts = [bytes_[at:at + 8 * MIB] for at in range(0, len(bytes_), 8 * MIB)]
    md5s = b"".join(hashlib.md5(part).digest() for part in parts)
    etag = f'"{hashlib.md5(md5s).hexdigest()}-{len(parts)}"'
    assert s3.head_object(Bucket="large", Key="d/0")["ETag"] == etag
    s3.copy({"Bucket": "large", "Key": "d/0"}, "large", "copy", Config=config)
    assert s3.head_object(Bucket="large", Key="copy")["ContentLength"] == len(bytes_)
    put = s3.put_object(Bucket="large", Key="one", Body=bytes_[:20 * MIB])
    assert "-" in put["ETag"]
    started = s3.create_multipart_upload(Bucket="large", Key="never")
    s3.upload_part(Bucket="large", Key="never", UploadId=started["UploadId"], PartNumber=1, Body=b"1")
    assert len(s3.list_multipart_uploads(Bucket="large")["Uploads"]) == 1
    listed = s3.list_parts(Bucket="large", Key="never", UploadId=started["UploadId"])
    assert [part["Size"] for part in listed["Parts"]] == [1]
    s3.abort_multipart_upload(Bucket="large", Key="never", UploadId=started["UploadId"])


def strangers():
    wrong = client(aws_secret_access_key="another secret", aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"])
    refused("SignatureDoesNotMatch", wrong.list_buckets)
    refused("SignatureDoesNotMatch", wrong.create_bucket, Bucket="bucket")
    refused("InvalidAccessKeyId", client(aws_access_key_id="x", aws_secret_access_key="another secret").list_buckets)
    anonymous = client(config={"signature_version": UNSIGNED})
    refused("AccessDenied", anonymous.list_buckets)
    refused("AccessDenied", anonymous.create_bucket, Bucket="bucket")
    older = client(config={"signature_version": "s3"})
    refused("InvalidRequest", older.list_buckets)


def append_only():
    s3 = client()
    s3.put_object(Bucket="bucket", Key="new", Body=b"1")
    refused("AccessDenied", s3.put_object, Bucket="bucket", Key="new", Body=b"2")
    refused("AccessDenied", s3.delete_object, Bucket="bucket", Key="new")
    assert s3.get_object(Bucket="bucket", Key="new")["Body"].read() == b"1"


if __name__ == "__main__":
    globals()[sys.argv[1]]()
