"""An S3 server with a bucket named `bucket`, and one user. It checks signatures, and ends with its standard input.

    python3 s3_server.py [CERTIFICATE KEY]

prints the port, the user's key and the secret, in one line.
"""

import os
import sys
import threading

# So many requests are not checked: those that make the bucket and the user.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"
# Neither what this machine is configured with nor what it could ask outside.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

import boto3  # noqa: E402: reads the environment
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: E402
from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: E402


class Quiet(WSGIRequestHandler):
    """Connections stay open, and requests are not reported."""

    protocol_version = "HTTP/1.1"

    def log(self, type, message, *args):
        pass


EVERYTHING = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'


def main():
    certificate = tuple(sys.argv[1:3]) or None
    server = make_server(
        "127.0.0.1",
        0,
        DomainDispatcherApplication(create_backend_app),
        threaded=True,
        request_handler=Quiet,
        ssl_context=certificate,
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asking = {
        "endpoint_url": f"{'https' if certificate else 'http'}://localhost:{server.server_port}",
        "region_name": "us-east-1",
        "aws_access_key_id": "nobody",
        "aws_secret_access_key": "none",
        "verify": False,
    }
    boto3.client("s3", **asking).create_bucket(Bucket="bucket")
    iam = boto3.client("iam", **asking)
    iam.create_user(UserName="user")
    iam.put_user_policy(UserName="user", PolicyName="everything", PolicyDocument=EVERYTHING)
    key = iam.create_access_key(UserName="user")["AccessKey"]
    print(server.server_port, key["AccessKeyId"], key["SecretAccessKey"], flush=True)
    sys.stdin.read()


main()
